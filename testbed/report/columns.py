"""Text for people: tables whose columns stand under their titles, sizes, durations."""

from collections.abc import Sequence


def align(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart, no spaces at a line's end."""
    everything = [titles, *rows]
    widths = [max(len(row[i]) for row in everything) for i in range(len(titles))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in everything]
    return "\n".join(lines)


def megabytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB" if size else "-"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if hours < 2 else f"{hours:.0f} h"
