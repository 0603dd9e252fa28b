"""The limits that a start measures by the clock, once every graph is checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from graphpod_policy import EngineConfig, Phase
from graphpod_runtime.distributed.agreement import ALONE, Ranks
from graphpod_runtime.engine.capture.phase_capture import PhaseCapture
from graphpod_runtime.engine.forward.inputs import dummy_inputs
from graphpod_runtime.engine.start.device_state import DeviceState
from graphpod_runtime.engine.start.drafting.draft_model import DraftStart
from graphpod_runtime.engine.start.limits.draft_limit import draft_limit
from graphpod_runtime.engine.start.limits.prefill_budget import LEAST_BUDGET, prefill_budget, seconds_of


@dataclass(frozen=True, slots=True)
class MeasuredLimits:
    """Of one start: `captured` are the graphs that it serves with, none of a phase that runs eagerly. `ranks` go by the
    clock of the slowest."""

    config: EngineConfig
    captured: Mapping[Phase, PhaseCapture]
    device_state: DeviceState
    ranks: Ranks = ALONE

    def prefill_budget(self, draft: DraftStart | None) -> int:
        """Tokens of a prefill pass between two decode passes, which a draft model reads as well; the chunk where a
        phase has no graphs."""

        def seconds(size: int) -> float:
            reading = 0.0 if draft is None else self._slowest(draft.reading_seconds(size))
            return self._seconds(Phase.Prefill, size) + reading

        sizes = {phase: self._sizes(phase) for phase in Phase}
        if not all(sizes.values()):
            return self.config.prefill_chunk
        decode, ascending = self._seconds(Phase.Decode, sizes[Phase.Decode][-1]), sizes[Phase.Prefill]
        least = min(LEAST_BUDGET, ascending[-1])
        enough = [size for size in ascending if size >= least]
        return prefill_budget(decode, enough, seconds, self.config.prefill_chunk)

    def draft_limit(self, draft: DraftStart | None) -> int:
        """Sequences of the largest batch with drafts; every batch where decode has no graphs."""
        assert self.config.max_batch is not None, "a start has derived it"
        most = self.config.max_batch if draft is None else draft.sequences
        sizes, width = self._sizes(Phase.Decode), self.config.feature_set().verify_width
        if not sizes:
            return most
        seconds = partial(self._seconds, Phase.Decode)
        if draft is None:
            return min(draft_limit(sizes, width, seconds), most)
        return min(draft.limit(sizes, width, seconds, self._slowest), most)

    def token_seconds(self) -> float:
        """Of a prompt's token in the largest prefill pass. A draft model reads what is loaded as well as what is
        computed, so its time decides nothing."""
        if sizes := self._sizes(Phase.Prefill):
            return self._seconds(Phase.Prefill, sizes[-1]) / sizes[-1]
        size, attention = self.config.prefill_chunk, self.device_state.attention
        inputs = dummy_inputs(Phase.Prefill, size, self.config.page_size, self.device_state.device)
        attention.plan(inputs)
        prefill = self.device_state.passes[Phase.Prefill]
        return seconds_of(lambda: prefill.eager(inputs, attention.run, size), self.device_state.place.wait) / size

    def _sizes(self, phase: Phase) -> tuple[int, ...]:
        """Rows of the graphs of `phase`, ascending."""
        return self.captured[phase].graphs.sizes if phase in self.captured else ()

    def _seconds(self, phase: Phase, size: int) -> float:
        """Of the graph of `size` rows."""
        inputs = dummy_inputs(phase, size, self.config.page_size, self.device_state.device)
        graphs = self.captured[phase].graphs
        return self._slowest(seconds_of(lambda: graphs.replay(inputs, size), self.device_state.place.wait))

    def _slowest(self, seconds: float) -> float:
        """Of all ranks, each of which took so many seconds: they make the same choices by it."""
        return self.ranks.most(round(seconds * 1e9)) / 1e9
