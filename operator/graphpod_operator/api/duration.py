"""Durations as the API has them: one number and one unit, such as `90s`, `1.5m` or `200ms`."""

from __future__ import annotations

import re
from decimal import Decimal

PATTERN = r"^[0-9]{1,6}(\.[0-9]{1,3})?(ms|s|m|h)$"

_SYNTAX = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m|h)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}


def seconds(text: str) -> float:
    """The duration in seconds. Raises ValueError, naming the text, for anything `PATTERN` does not allow."""
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write a number and one of ms, s, m, h, such as 90s")
    return float(Decimal(match[1]) * _SECONDS[match[2]])
