"""A condition before it is written."""

from __future__ import annotations

from dataclasses import dataclass

from graphpod_operator.conditions.reasons import Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """Its reason, and what happened in words."""

    reason: Reason
    what: str
