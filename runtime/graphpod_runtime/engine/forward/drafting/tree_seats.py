"""Seats of an engine whose drafts are trees: their rows are nodes, and the right branch is made text behind a pass."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats, Step
from graphpod_runtime.engine.schedule.drafting import DraftBatch
from graphpod_runtime.kernels.rows.draft_trees import DraftTrees, straighten, walk
from graphpod_runtime.kernels.rows.seat_rows_contract import StepRows


class TreeSeats(DraftingSeats):
    """Those of one engine, whose proposer gives packed trees as `kernels/rows/draft_trees.py` has them."""

    def __init__(
        self, page_size: int, into: StepRows, hidden: Tensor, rows: int, cache: Callable[[], KvCache], deepest: int
    ) -> None:
        """As DraftingSeats; `hidden` [rows of a step] is attention's static buffer, `cache` its cache, and branches
        have at most `deepest` drafts."""
        super().__init__(page_size, into, rows, lambda: cache().slot_tokens)
        self._hidden, self._cache, self._deepest = hidden, cache, deepest

    def step(self, batch: DraftBatch) -> Inputs:
        inputs = super().step(batch)
        return replace(inputs, hidden=self._hidden[: inputs.count])

    def _read(self, drafts: Tensor | None) -> Tensor:
        self._hidden.zero_()
        if drafts is None:
            return super()._read(None)
        trees, (entries, offsets, *_) = DraftTrees.of(drafts), self._places
        real = super()._read(trees.tokens[:, 1:])
        count = len(entries)
        self._hidden[:count] = trees.hidden[entries, offsets].where(real, 0)
        self._into.positions[:count] -= (offsets - trees.depths[entries, offsets]).where(real, 0)
        return real

    def _advance(self, step: Step, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        if step.drafts is None:
            return super()._advance(step, tokens)
        own, trees = self.state[step.seats], DraftTrees.of(step.drafts)
        walked = walk(self.state, step.seats, step.places, trees, step.tokens, step.real, tokens, self._deepest)
        straighten(self._cache(), own, walked)
        return walked.taken, walked.path
