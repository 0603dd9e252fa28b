"""Time as the operator needs it: a clock that only goes forward, and a date to write down."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two readings of time."""

    def monotonic(self) -> float:
        """Seconds of a clock that only goes forward."""
        ...

    def timestamp(self) -> str:
        """Now, as RFC 3339 in UTC with whole seconds."""
        ...


class SystemClock:
    """The machine's time."""

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()

    def timestamp(self) -> str:
        """Now, as RFC 3339 in UTC with whole seconds."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
