"""Is the engine getting on? Every stage has a limit on the time without progress (contract: max(60 s, 3 × estimate)).

Progress is what the engine's heartbeats carry: a stage ended, some weights read, a pass of a capture or of its check
begun, a size done, a turn of the serving loop. A dead
heart shows the same way: its last progress grows old.
"""

import time
from collections.abc import Callable

from graphpod_policy import Facts, ModelFacts, Plan, refine
from graphpod_policy.start.stage_limits import FLOOR_SECONDS, IMPORT, stage_limits
from graphpod_runtime.wire.messages import Heartbeat

UNMET = "; if ranks cannot connect: open all ports between their machines, or set GLOO_ and NCCL_SOCKET_IFNAME"
"""Where the ranks of several machines have not met: what connects them chooses its ports itself."""
SILENT_SECONDS = 20.0
"""Of the first of several ranks, whose heart beats unless it imports: it is stopped, and so are the others."""


class Watchdog:
    """Judges heartbeats. Reading it changes nothing."""

    def __init__(
        self, plan: Plan, clock: Callable[[], float] = time.monotonic, model: ModelFacts | None = None
    ) -> None:
        """`model` as its config.json describes it: what a plan was estimated with may have been much smaller."""
        self._clock = clock
        self._heard = (IMPORT, clock())
        """The stage and the last progress: one value, because probes read it on a thread of their own."""
        self._turned = self._beat = clock()
        self._ranks = plan.features.tensor * plan.features.pipeline
        self._unmet = UNMET if plan.features.nodes > 1 else ""
        self._silent_seconds = SILENT_SECONDS if self._ranks > 1 else None
        self.limits = stage_limits(plan, FLOOR_SECONDS)
        """Seconds without progress that each stage may take."""
        if model is not None:
            real = stage_limits(refine(plan, Facts(model=model)), FLOOR_SECONDS)
            self.limits = {stage: max(limit, real[stage]) for stage, limit in self.limits.items()}

    def heard(self, beat: Heartbeat) -> None:
        """A heartbeat has come."""
        self._heard, self._beat = (beat.stage, max(self._heard[1], beat.progress)), self._clock()

    def turned(self) -> None:
        """The event loop of the API and the wire goes on."""
        self._turned = self._clock()

    def held(self) -> str | None:
        """For how long the event loop of the API and the wire has not gone on; None when all is well."""
        silent = self._clock() - self._turned
        return f"the front has served nothing for {silent:.0f} s" if silent > FLOOR_SECONDS else None

    def stuck(self) -> str | None:
        """What is stuck, for how long and beyond which limit; None when all is well."""
        if (mute := self.mute()) is not None:
            return mute
        stage, progress = self._heard
        silent, limit = self._clock() - progress, self.limits.get(stage, FLOOR_SECONDS)
        if silent <= limit:
            return None
        because = self._unmet if stage == IMPORT else ""
        return f"no progress at {stage} for {silent:.0f} s, the limit is {limit:.0f} s{because}"

    def mute(self) -> str | None:
        """For how long the first of several ranks stands still, heart and all; None when it does not."""
        seconds = self._clock() - self._beat
        if self._silent_seconds is None or seconds <= self._silent_seconds:
            return None
        if self._heard[0] == IMPORT and seconds <= self.limits[IMPORT]:
            return None  # a library that is loaded holds the interpreter, for long on a throttled CPU
        return f"rank 0 of {self._ranks} stands still at {self._heard[0]}: no heartbeat for {seconds:.0f} s"
