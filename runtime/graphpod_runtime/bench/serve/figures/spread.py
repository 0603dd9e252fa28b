"""Percentiles."""

from collections.abc import Iterable, Sequence

import msgspec

CURVE = 100
"""Steps of a curve."""


class Spread(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How values are distributed, in seconds. `curve` has the percentiles 0, 1 … 100."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    curve: tuple[float, ...]


def spread(values: Iterable[float]) -> Spread | None:
    """None of no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    curve = tuple(percentile(ordered, at) for at in range(CURVE + 1))
    return Spread(len(ordered), sum(ordered) / len(ordered), curve[50], curve[90], curve[99], curve)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """By linear interpolation between neighbours, as numpy's default. `ordered` ascends and is not empty."""
    place = percent / 100 * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
