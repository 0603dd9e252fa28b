"""A head drafts: it reads the hidden states that passes of the model leave on the device, so nothing is waited for.

Its keys and values lie in a cache of its own, under the pages of the model's, as those of a draft model do. It can read
a token only while the model's state of it is there: prompts behind the model's pass, answers before the next drafts, or
before the next pass without any. What came back from the host tier it has not read; its drafts are worse there.

A prefix's last slot belongs to the token behind it, which another request may have replaced by its own. That is one row
of many, and a draft is never trusted.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphpod_policy import FallbackReason
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.engine.forward.drafting.head_steps import HeadSteps
from graphpod_runtime.engine.forward.drafting.steps_on_graphs import StepsOnGraphs
from graphpod_runtime.engine.schedule.batch import PrefillBatch
from graphpod_runtime.kernels.rows.draft_rows import Places
from graphpod_runtime.models.heads.draft_head import DraftHead


@dataclass(slots=True)
class DraftingHead(StepsOnGraphs):
    """Reads states by its `steps`."""

    steps: HeadSteps
    head: DraftHead
    dtype: torch.dtype
    """Of states."""

    def read(self, inputs: Inputs) -> None:
        """A pass over `inputs` for its time and memory, as a start measures them."""
        states = torch.zeros(inputs.count, self.head.states_width, dtype=self.dtype, device=inputs.tokens.device)
        self._forward(inputs, states)

    def prefill(self, batch: PrefillBatch, inputs: Inputs, states: Tensor) -> None:
        """Behind the model's pass over `inputs`, those of `batch`, which left `states` [rows, states_width]."""
        following: list[int] = []
        for chunk in batch.chunks:
            tokens = chunk.sequence.tokens[chunk.start + 1 : chunk.end + 1]
            # What follows a whole prompt is not known yet: the first draft step reads that row.
            following += [*tokens, *(0,) * (chunk.end - chunk.start - len(tokens))]
        tokens = torch.tensor(following).to(inputs.tokens.device, non_blocking=True)
        self._forward(replace(inputs, tokens=tokens), states)

    def skipped(self, seats: Tensor) -> None:
        """A pass of the model without drafts is next: its states replace those of the latest one. No graph reads
        without drafting, so these passes are eager, and counted as such."""
        for part in seats.split(self.steps.sequences):
            self.steps.read(part, self.attention.run)
            above = len(seats) > max(self.graphs, default=0)
            reason = FallbackReason.SizeAboveLadder if above else FallbackReason.NotCaptured
            self.counted(reason if self.graphs else self.eagerly)

    def _forward(self, inputs: Inputs, states: Tensor) -> None:
        """Keys and values of `inputs` next to `states`; their results are not read."""
        self.attention.plan(inputs)
        self.head(inputs.tokens, self.head.entering(states), inputs.positions, self.attention.run)

    def keep(self, seats: Tensor, places: Places, states: Tensor, given: Tensor) -> None:
        """As `HeadSteps.keep`."""
        self.steps.keep(seats, places, states, given)
