"""Time as the operator needs it: a clock that only goes forward, and a date to write down."""

from __future__ import annotations

import sys
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
    """The machine's time. Sleep counts: a laptop that was shut, or a virtual machine that was paused, is not to believe
    afterwards that its Lease is fresh.
    """

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        if sys.platform == "linux":
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()  # what else there is stands still while the machine sleeps

    def timestamp(self) -> str:
        """Now, as RFC 3339 in UTC with whole seconds."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
