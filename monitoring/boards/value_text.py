"""A value as people read it."""

import math

from monitoring.boards.row import Unit

SUFFIXES = {
    Unit.PerSecond: "/s",
    Unit.RequestsPerSecond: " req/s",
    Unit.TokensPerSecond: " tok/s",
    Unit.Tokens: " tok",
}
"""After a number of so many."""
BYTES = ("B", "KiB", "MiB", "GiB")


def text(value: float, unit: Unit, largest: float | None = None) -> str:
    """The value with its unit. `largest`: of an axis, whose values all have the unit of that one; 0 has none there."""
    if largest is not None and value == 0:
        return "0"
    size = abs(value if largest is None else largest)
    if unit is Unit.Share:
        return f"{value:,.0%}" if value == 0 or abs(value) >= 1 else f"{_plain(value * 100)}%"
    if unit is Unit.Seconds:
        return f"{value * 1000:.3g} ms" if 0 < size < 1 else f"{value:.3g} s"
    if unit in (Unit.Bytes, Unit.BytesPerSecond):
        power = min(int(math.log2(size) // 10), len(BYTES) - 1) if size >= 1 else 0
        return f"{value / 2 ** (10 * power):.4g} {BYTES[power]}" + ("/s" if unit is Unit.BytesPerSecond else "")
    if unit is Unit.Watts:
        return f"{value:.4g} W"
    return f"{value:.4g}{SUFFIXES.get(unit, '')}"


def _plain(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{float(f'{value:.3g}'):.12f}".rstrip("0").rstrip(".")
