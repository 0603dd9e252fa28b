"""How long the next pass need not be launched yet, because the device computes the one before it.

What runs in a pass is decided when it is launched. Launched at once, it would be decided a whole pass early, and a
request that comes meanwhile would wait for two passes. So a launch waits until the device has only as much left to do
as the host needs to plan and launch: late enough for what comes, early enough that the device never waits.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from graphpod_policy import FallbackReason, Phase

if TYPE_CHECKING:  # with torch, which the process imports when its heart beats
    from graphpod_runtime.engine.forward.pass_in_flight import Ran

MARGIN = 0.0005
"""Seconds that the device should have left to do when a launch is complete."""
WORTH = 0.001
"""Seconds. A launch that could wait for less is not delayed: what might come in that time is not worth the risk."""
LATEST = 8
"""Passes of a kind, and launches of decode, by which the next one is foreseen: the fastest pass, the slowest launch."""


Kind = tuple[Phase, int | FallbackReason]
"""The graph that a pass replays, or why it replays none. Decode passes of one graph take about the same time."""


class Flight(Protocol):
    """What it needs of a launched pass."""

    ran: "Ran"

    @property
    def device_seconds(self) -> float:
        """The device's time for it, once it has landed."""


class LaunchDelay:
    """Foresees by what was measured, for a device that works while the host does not wait for it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._passes: dict[Kind, deque[float]] = {}
        self._launches: deque[float] = deque(maxlen=LATEST)
        """Those of decode: a prefill pass in segments has the device busy long before all of it is launched."""
        self._line: list[Kind] = []
        """The kinds of the passes that are launched and have not landed, in their order."""
        self._due = 0.0

    def launched(self, flight: Flight, seconds: float) -> None:
        """A pass is in line on the device; to plan and launch it took the host so long."""
        if flight.ran.phase is Phase.Decode:
            self._launches.append(seconds)
        self._line.append((flight.ran.phase, flight.ran.choice))
        self._look()

    def landed(self, flight: Flight) -> None:
        """The first pass of the line has landed."""
        self._passes.setdefault(self._line.pop(0), deque(maxlen=LATEST)).append(flight.device_seconds)
        self._look()

    @property
    def left(self) -> float:
        """Seconds until the next pass is to be launched; 0 where it is due, or the running one is of no known kind."""
        return max(0.0, self._due - self._clock())

    def _look(self) -> None:
        """The device begins the one pass of the line now, or it has two, or none. Others than replays of decode may
        take any time."""
        known = None
        if len(self._line) == 1 and self._launches:
            phase, choice = self._line[0]
            if phase is Phase.Decode and not isinstance(choice, FallbackReason):
                known = self._passes.get(self._line[0])
        wait = min(known) - max(self._launches) - MARGIN if known else 0.0
        self._due = self._clock() + wait if wait >= WORTH else 0.0
