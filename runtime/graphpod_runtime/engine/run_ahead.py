"""One pass ahead: while the device computes a pass, the host plans and launches the next; then it takes what the first
gave.

At most one pass is in flight when another is planned, so the device always has the next one in line and the host is
never more than one token behind. A pipeline has a pass in flight for each stage but one, so that all stages compute.
What chooses the tokens of a pass may have to wait for the tokens before them, as grammars do: it is launched behind the
pass, once they have landed.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from graphpod_runtime.engine.schedule.batch import Batch
from graphpod_runtime.engine.schedule.scheduler import Progress, Scheduler
from graphpod_runtime.engine.schedule.yielded import Yielded

PassInFlight = TypeVar("PassInFlight")
Watched = TypeVar("Watched", contravariant=True)


class Launching(Protocol[PassInFlight]):
    """What it needs of `engine.runner.Runner`."""

    @property
    def ahead(self) -> bool:
        """Whether a pass may be launched before the one before it has landed."""

    def launch(self, batch: Batch) -> PassInFlight: ...
    def choose(self, flight: PassInFlight) -> None:
        """Launches what chooses its tokens, unless that is launched."""

    def land(self, flight: PassInFlight) -> Yielded: ...


class Watch(Protocol[Watched]):
    """Who hears of launches and landings, as `engine.launch_delay.LaunchDelay` does."""

    def launched(self, flight: Watched, seconds: float) -> None: ...
    def landed(self, flight: Watched) -> None: ...


class RunAhead(Generic[PassInFlight]):
    """A scheduler and a runner, in turns."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Launching[PassInFlight],
        planned: Callable[[], None] = lambda: None,
        watch: Watch[PassInFlight] | None = None,
    ) -> None:
        """`planned` is called between the plan of a pass and its launch."""
        self.scheduler = scheduler
        self._planned = planned
        self._watch = watch
        self._runner = runner
        self._ahead = max(1, scheduler.limits.stages - 1)
        """Passes that may be in flight when another is planned."""
        self._flights: deque[tuple[Batch, PassInFlight]] = deque()
        self.waits = False
        """The latest turn did nothing: all that is open waits for masks of grammars, or for pages from the host."""

    @property
    def busy(self) -> bool:
        """Whether anything is open or in flight: what ended in flight still owns its pages."""
        return self.scheduler.busy or bool(self._flights)

    def turn(self) -> list[Progress]:
        """Launches the next pass, if one can be planned, and lands the earliest one unless too few are in flight. The
        first turn yields nothing."""
        launched = self._launch()
        if launched is not None:
            self._flights.append(launched)
        self.waits = not self._flights
        before = None
        if launched is None or len(self._flights) > self._ahead or not self._runner.ahead:
            before = self._flights.popleft() if self._flights else None
        if before is not None:
            self._runner.choose(before[1])
        progress = self._land(before)
        if self._flights:
            self._runner.choose(self._flights[-1][1])
        return progress

    def _launch(self) -> tuple[Batch, PassInFlight] | None:
        began = time.perf_counter()
        batch = self.scheduler.next()
        self._planned()
        if batch is None:
            return None
        flight = self._runner.launch(batch)
        if self._watch is not None:
            self._watch.launched(flight, time.perf_counter() - began)
        return batch, flight

    def _land(self, flight: tuple[Batch, PassInFlight] | None) -> list[Progress]:
        if flight is None:
            return []
        batch, launched = flight
        yielded = self._runner.land(launched)
        if self._watch is not None:
            self._watch.landed(launched)
        return self.scheduler.advance(batch, yielded)
