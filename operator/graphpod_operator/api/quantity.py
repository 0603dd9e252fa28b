"""Kubernetes quantities of compute resources: parsed exactly, written as the API server writes them.

The server rewrites `1000m` to `1` and `1024Mi` to `1Gi`. What we send must already be in that form, or our own
fields would look changed on every comparison. Rules from `k8s.io/apimachinery/pkg/api/resource/quantity.go`, and from
the rounding in `SetDefaults_ResourceList`.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_UP, Context, Decimal

_EXPONENT = r"[eE]([+]?1[0-8]|[-+]?[0-9])"
PATTERN = rf"^[0-9]{{1,15}}(\.[0-9]{{1,9}})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi|{_EXPONENT})?$"
"""With an exponent from -9 to 18, as in 1e9; Kubernetes knows others."""

_SYNTAX = re.compile(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?)(?:(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)|{_EXPONENT})?")
_DECIMAL = {"m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_MILLI = Decimal(1).scaleb(-3)
_MOST = 2**63 - 1
SHOWN = 80
"""Characters of a text in a message."""
_WIDE = Context(prec=64)
"""Holds every quantity that `PATTERN` allows exactly: 15 digits, a factor of 2^50, 9 decimals."""


def value(text: str | int) -> Decimal:
    """The exact number behind a quantity, in its base unit (cores, bytes, devices).

    Raises ValueError, naming the text, for anything `PATTERN` does not allow.
    """
    match = _SYNTAX.fullmatch(str(text))
    if match is None:
        raise ValueError(
            f"{repr(text)[:SHOWN]} is not a quantity; write a number with an optional suffix, such as 500m, 2Gi or 1e9"
        )
    number, suffix = Decimal(match[1]), match[2] or ""
    if match[3] is not None:
        return number.scaleb(int(match[3]))
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    return number.scaleb(_DECIMAL[suffix])


def whole(text: str | int) -> int:
    """A quantity as an integer of its base unit, rounded up (bytes; cores for a CPU limit)."""
    return math.ceil(value(text))


def canonical(text: str | int) -> str:
    """The form the API server stores in requests and limits.

    Rounded up to thousandths, capped at 2^63 − 1 for binary suffixes, with the largest suffix that leaves an integer.
    """
    amount = value(text).quantize(_MILLI, ROUND_UP, _WIDE).normalize(_WIDE)
    if amount == 0:
        return "0"
    is_binary = str(text).endswith("i")
    if is_binary and amount >= 1024 and amount == amount.to_integral_value():
        return _binary(min(int(amount), _MOST))
    number, power = _decimal(amount)
    if "e" in str(text).lower():
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIX[power]}"


def _binary(amount: int) -> str:
    suffix = ""
    for candidate, power in _BINARY.items():
        if amount % (1 << power):
            break
        suffix = candidate
    return f"{amount >> _BINARY.get(suffix, 0)}{suffix}"


def _decimal(amount: Decimal) -> tuple[int, int]:
    """A whole number, and the power of ten, a multiple of 3, that it stands before."""
    exponent = amount.as_tuple().exponent
    assert isinstance(exponent, int)  # finite: PATTERN admits neither NaN nor infinity
    power = max(-3, min(18, 3 * math.floor(exponent / 3)))
    return int(amount.scaleb(-power)), power
