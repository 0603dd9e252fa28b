"""Why a service cannot have what it asks for. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from graphpod_operator.conditions.reasons import Reason


@dataclass(frozen=True, slots=True)
class Refused:
    """A service that cannot run as written. Its children, if it has any, stay as they are."""

    reason: Reason
    what: str
