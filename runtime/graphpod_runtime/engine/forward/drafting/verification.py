"""A decode step over drafts, from its batch to its logits."""

from collections.abc import Callable
from collections.abc import Sequence as List
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.forward.pass_in_flight import Forwarded, Moment, Ran
from graphpod_runtime.engine.forward.sampling.processors import History
from graphpod_runtime.engine.forward.sampling.sampler import Sampler
from graphpod_runtime.engine.schedule.batch import DecodeBatch
from graphpod_runtime.engine.schedule.drafting import DraftBatch


@dataclass(frozen=True, slots=True)
class Verification:
    """Of one engine. Rows of a sequence choose as if each were alone: at every place the model draws its own token with
    that place's noise, so a text does not depend on its drafts."""

    seats: DraftingSeats
    sampler: Sampler
    slot_tokens: Tensor
    stream: torch.cuda.Stream | None
    """Of a GPU."""
    run: Callable[[Inputs, Moment], tuple[tuple[Any, ...], Ran]]
    """One pass over rows, which began then."""

    def step(self, batch: DecodeBatch, given: List[int] | None) -> tuple[Ran, Forwarded]:
        """ValueError for tokens that are `given`: which drafts are right depends on the step's own."""
        if given is not None:
            raise ValueError("a step over drafts goes on from its own tokens, and others were given")
        assert isinstance(batch, DraftBatch), "an engine with drafts plans no other"
        began = Moment(self.stream)
        inputs = self.seats.step(batch)
        (logits, chosen, *states), ran = self.run(inputs, began)
        members, history = self.sampler.batch(batch.by_row(batch.sequences)), None
        if members.reading:
            ends = [end + width for end, width in zip(batch.ends, batch.widths, strict=True)]
            history = History.of_step(self.slot_tokens, inputs, batch.by_row(ends), members.reading)
        ends_text, entries = (True,) * inputs.count, inputs.yields
        return ran, Forwarded(
            ends_text,
            entries,
            members,
            logits,
            chosen,
            inputs.positions,
            history,
            None,
            states=next(iter(states), None),
        )
