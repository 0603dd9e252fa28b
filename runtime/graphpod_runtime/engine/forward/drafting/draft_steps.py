"""All steps of a draft model as one pass: from the latest token of each sequence to its drafts.

The pass reads what the device keeps of the sequences, so the host prepares nothing but which seats there are. Its first
step has two rows of each sequence, the latest token and the one before it: of that one the draft model has no keys and
values where all drafts of the last pass were right. Further steps have one row each, the draft before it.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.engine.forward.drafting.step_rows import DraftStepRows
from graphpod_runtime.engine.forward.passes import Code
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, ROOM, TOKEN
from graphpod_runtime.models.model import Model


class DraftSteps:
    """`count` drafts for each of up to `sequences` seats, on static buffers."""

    def __init__(
        self,
        model: Model,
        attention: AttentionBackend,
        count: int,
        sequences: int,
        state: Tensor,
        slot_tokens: Callable[[], Tensor],
    ) -> None:
        """`state` [seats, PAGES + pages] as `kernels/rows/draft_rows.py` has it, its last seat one of padding;
        `slot_tokens` are those of the target's cache. `attention` is bound to a cache of the same page size."""
        self.count, self.sequences = count, sequences
        self._model, self._state, self._slot_tokens = model, state, slot_tokens
        device = state.device
        self._buffers = Buffers(
            Slot("seats", sequences, (), torch.int64, padding=len(state) - 1),
            Slot("drafts", sequences, (count,), torch.int64, padding=None),
            device=device,
        )
        self._rows = DraftStepRows(attention, 2 * sequences, state.shape[1] - PAGES)

    def tensors(self) -> Iterable[tuple[str, Tensor]]:
        """Names and whole buffers, for registration."""
        return ("state", self._state), ("slot_tokens", self._slot_tokens()), *self._buffers, *self._rows.tensors()

    def load(self, seats: Tensor, size: int) -> None:
        """`seats` [sequences] are those of the next pass, padded to `size`."""
        self._buffers.load("seats", seats, size)

    def drafts(self, count: int) -> Tensor:
        """[count, drafts] that the pass gave the first seats; the next one overwrites them."""
        return self._buffers.view("drafts", count)

    def code(self, size: int) -> Code:
        """What a graph of `size` sequences captures."""
        return lambda attend: self._run(size, attend)

    def _run(self, size: int, attend: Attend) -> None:
        own = self._state.index_select(0, self._buffers.view("seats", size))
        lengths, room, tables = own[:, LENGTH], own[:, ROOM], own[:, PAGES:]
        for part in range(2):
            self._rows.own(tables, part * size)
        before = (lengths - 2).clamp(min=0)
        earlier = self._slot_tokens().view(-1).index_select(0, self._rows.slots(tables, before)).long()
        token = own[:, TOKEN]
        # Behind the latest tokens: their logits are the first rows.
        latest = self._step(
            size,
            attend,
            torch.cat((token, earlier)),
            torch.cat((lengths, lengths - 1)),
            torch.cat((tables, tables)),
            torch.cat((lengths >= 1, lengths >= 2)),
        )
        self._buffers.view("drafts", size)[:, 0].copy_(latest)
        for step in range(1, self.count):
            ends = lengths + step
            latest = self._step(size, attend, latest, ends, tables, ends <= room)
            self._buffers.view("drafts", size)[:, step].copy_(latest)

    def _step(self, size: int, attend: Attend, tokens: Tensor, ends: Tensor, tables: Tensor, real: Tensor) -> Tensor:
        """The tokens that follow the first `size` of `tokens` [rows]; the others as `DraftStepRows.plan` has them."""
        positions = self._rows.plan(tokens, ends, tables, real)
        hidden = self._model.body(self._model.embed(tokens), positions, attend)
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        return self._model.head(hidden[:size]).argmax(-1)
