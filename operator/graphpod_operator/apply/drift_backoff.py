"""When to put back what somebody else changed: at once at first, and ever more seldom while it goes on.

A person's change is put back at once. A program that answers each of our writes with one of its own would be answered
as fast as the API server can write, for ever.
"""

from __future__ import annotations

from collections.abc import Hashable

from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.events.recorder import EventRecorder
from graphpod_operator.kube.clock import Clock

FREE = 5
"""Times that something is put back at once."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # s; it doubles each time
STATUS_PAUSE = 5.0
"""The longest for a status, which has to agree with what is within 10 s (contract 13)."""
LIE_PAUSE = 1.0
"""The longest for a status that says of a service that it serves where it does not."""
QUIET_SECONDS = 300.0
"""Without a change by somebody, after which the next one counts as the first."""


class DriftBackoff:
    """What was put back how often, by any name. Times are seconds of a clock that only goes forward."""

    def __init__(self) -> None:
        self._put_back: dict[Hashable, tuple[int, float]] = {}

    def wait(self, what: Hashable, now: float, longest: float = LONGEST_PAUSE) -> float:
        """Seconds until it may be put back; 0 for now."""
        times, last = self._known(what, now)
        pause = min(longest, FIRST_PAUSE * 2.0 ** (times - FREE)) if times >= FREE else 0.0
        return max(0.0, last + pause - now)

    def put_back(self, what: Hashable, now: float) -> bool:
        """It was put back. Whether from now on it has to wait: somebody does not give up."""
        times, _ = self._known(what, now)
        self._put_back[what] = times + 1, now
        return times + 1 >= FREE

    def _known(self, what: Hashable, now: float) -> tuple[int, float]:
        self._put_back = {one: known for one, known in self._put_back.items() if now - known[1] < QUIET_SECONDS}
        return self._put_back.get(what, (0, now))


class PutBacks:
    """Decides whether a foreign change is put back now, and reports a writer who does not give up."""

    def __init__(self, clock: Clock, events: EventRecorder) -> None:
        self._clock = clock
        self._events = events
        self._backoff = DriftBackoff()

    async def pause(self, found: Service, what: Hashable, words: str, longest: float = LONGEST_PAUSE) -> float:
        """Seconds for which `what` stays as somebody made it; 0: it counts as put back."""
        now = self._clock.monotonic()
        if (wait := self._backoff.wait(what, now, longest)) > 0:
            return wait
        if self._backoff.put_back(what, now):
            await self._events.warn(found, Reason.Contested, f"{words} is changed again and again")
        return 0.0
