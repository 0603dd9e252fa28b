"""The two counts of eager passes, and what they must be for the passes that a schedule really ran."""

from dataclasses import dataclass

from graphpod_policy import FallbackReason, Phase
from graphpod_runtime.wire.counters import Counters
from truth.schedule.recorded_schedule import RecordedSchedule

FALLBACKS = "graphpod_graph_fallbacks_total"
REPLAYS = "graphpod_graph_replays_total"
EAGER = "graphpod_eager_passes_total"
PASSES = "graphpod_forward_passes_total"


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one phase over some passes."""

    passes: int
    replays: int
    eager: int
    fallbacks: dict[FallbackReason, int]

    @classmethod
    def now(cls, counters: Counters, phase: Phase) -> "Counts":
        """Since the engine started."""
        passes, replays, eager = (int(counters.value(name, phase=phase)) for name in (PASSES, REPLAYS, EAGER))
        return cls(
            passes,
            replays,
            eager,
            {reason: int(counters.value(FALLBACKS, phase=phase, reason=reason)) for reason in FallbackReason},
        )

    def __sub__(self, earlier: "Counts") -> "Counts":
        return Counts(
            self.passes - earlier.passes,
            self.replays - earlier.replays,
            self.eager - earlier.eager,
            {reason: count - earlier.fallbacks[reason] for reason, count in self.fallbacks.items()},
        )

    @property
    def reasons(self) -> frozenset[FallbackReason]:
        """Why passes ran eagerly."""
        return frozenset(reason for reason, count in self.fallbacks.items() if count)

    def wrong(self, phase: Phase, recorded: RecordedSchedule) -> str | None:
        """What does not add up with the passes of `recorded`, which are all that ran; None when everything does."""
        ran = sum(one.phase is phase for one in recorded.passes)
        fallbacks = sum(self.fallbacks.values())
        if self.eager != fallbacks:
            return f"{phase}: the body's hook saw {self.eager} eager passes, dispatch counted {fallbacks} fallbacks"
        if not self.passes == ran == self.replays + fallbacks:
            return (
                f"{phase}: {ran} passes ran, {self.passes} were counted, "
                f"{self.replays} replays and {fallbacks} fallbacks among them"
            )
        return None
