"""All steps of a draft head as one pass: from the hidden states that the model left to the drafts.

Row i of a sequence is the model's state of token i next to token i + 1, in KV slot i. Behind a pass of the model the
head lacks the rows of the tokens that the pass gave: one, and one for each right draft. They are the rows of its
first step, together with rows that mean nothing up to the width of a pass; the last real one gives the first draft.
Each further step has one row of a sequence, the draft and the head's own prediction in front of it.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.engine.forward.drafting.step_rows import DraftStepRows
from graphpod_runtime.engine.forward.passes import Code
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, ROOM, TOKEN, Places
from graphpod_runtime.models.heads.draft_head import DraftHead


class HeadSteps:
    """`count` drafts for each of up to `sequences` seats, on static buffers."""

    def __init__(
        self,
        head: DraftHead,
        attention: AttentionBackend,
        count: int,
        sequences: int,
        state: Tensor,
        slot_tokens: Callable[[], Tensor],
        dtype: torch.dtype,
        *,
        branches: int = 1,
    ) -> None:
        """`state` [seats, PAGES + pages] as `kernels/rows/draft_rows.py` has it, its last seat one of padding;
        `slot_tokens` are those of the model's cache. `attention` is bound to a cache of the same page size. Steps but
        the first have up to so many `branches` of a sequence."""
        self.count, self.sequences, self._width = count, sequences, count + 1
        self._head, self._state, self._slot_tokens = head, state, slot_tokens
        device = state.device
        self._states = torch.zeros(len(state), self._width, head.states_width, dtype=dtype, device=device)
        self._unread = torch.zeros(len(state), dtype=torch.int64, device=device)
        """[seats]: rows of the latest pass of each, behind which its latest token is."""
        self._offsets = torch.arange(self._width, device=device)
        self._buffers = Buffers(
            Slot("seats", sequences, (), torch.int64, padding=len(state) - 1),
            Slot("drafts", sequences, (count,), torch.int64, padding=None),
            device=device,
        )
        rows = max(self._width, branches) * sequences
        self._rows = DraftStepRows(attention, rows, state.shape[1] - PAGES)

    def tensors(self) -> Iterable[tuple[str, Tensor]]:
        """Names and whole buffers, for registration."""
        own = (("states", self._states), ("unread", self._unread), ("offsets", self._offsets))
        shared = (("state", self._state), ("slot_tokens", self._slot_tokens()))
        return *shared, *own, *self._buffers, *self._rows.tensors()

    def load(self, seats: Tensor, size: int) -> None:
        """`seats` [sequences] are those of the next pass, padded to `size`."""
        self._buffers.load("seats", seats, size)

    def drafts(self, count: int) -> Tensor:
        """[count, drafts] that the pass gave the first seats; the next one overwrites them."""
        return self._buffers.view("drafts", count)

    def keep(self, seats: Tensor, places: Places, states: Tensor, given: Tensor) -> None:
        """A pass of the model over `places` gave `seats` [entries] so many tokens, `given` [entries], and its rows the
        `states` [rows, states_width]."""
        self._states[seats, : places.rows.shape[1]] = states[places.rows]
        self._unread[seats] = given

    def forget(self, seats: Tensor) -> None:
        """`seats` are of other sequences now, whose latest states are not known."""
        self._unread[seats] = 0

    def draw(self, count: int, generator: torch.Generator) -> None:
        """The first seats, whose lengths are set, have states of chance, as a check needs them."""
        states = torch.randn(count, *self._states.shape[1:], generator=generator)
        unread = torch.randint(self._width + 1, (count,), generator=generator)
        self._states[:count] = states.to(self._states)
        self._unread[:count] = unread.to(self._unread).minimum(self._state[:count, LENGTH] - 1)

    def clear(self) -> None:
        """Undoes `draw`."""
        self._states.zero_()
        self._unread.zero_()

    def code(self, size: int) -> Code:
        """What a graph of `size` sequences captures."""
        return lambda attend: self._run(size, attend)

    def read(self, seats: Tensor, attend: Attend) -> None:
        """What `seats` lack of keys and values, without drafts."""
        self._first(self._state.index_select(0, seats), seats, attend)

    def _run(self, size: int, attend: Attend) -> None:
        seats, drafts = self._buffers.view("seats", size), self._buffers.view("drafts", size)
        own = self._state.index_select(0, seats)
        lengths, room, tables = own[:, LENGTH], own[:, ROOM], own[:, PAGES:]
        states = self._first(own, seats, attend)
        latest = self._head.likeliest(states)
        drafts[:, 0].copy_(latest)
        self._rows.own(tables)
        for step in range(1, self.count):
            ends = lengths + (step - 1)
            positions = self._rows.plan(latest, ends, tables, ends <= room)
            states = self._head(latest, states, positions, attend)
            latest = self._head.likeliest(states)
            drafts[:, step].copy_(latest)

    def _first(self, own: Tensor, seats: Tensor, attend: Attend) -> Tensor:
        """Rows that the head lacks of the seats that are `own` [size, PAGES + pages]; the last prediction of each
        [size, hidden]."""
        size, width = own.shape[0], self._width
        lengths, unread = own[:, LENGTH], self._unread.index_select(0, seats)
        tables = own[:, PAGES:].repeat_interleave(width, 0)
        ends = ((lengths - unread)[:, None] + self._offsets).flatten()
        real = (self._offsets < unread[:, None]).flatten()
        latest = (self._offsets == (unread - 1)[:, None]).flatten()
        following = self._rows.slots(tables, ends.where(real, 0))
        earlier = self._slot_tokens().view(-1).index_select(0, following).long()
        tokens = own[:, TOKEN].repeat_interleave(width).where(latest, earlier)
        states = self._head.entering(self._states.index_select(0, seats).flatten(0, 1))
        self._rows.own(tables)
        positions = self._rows.plan(tokens, ends, tables, real)
        predicted = self._head(tokens, states, positions, attend)
        last = (unread - 1).clamp(min=0)[:, None, None].expand(-1, 1, predicted.shape[1])
        return predicted.view(size, width, -1).gather(1, last)[:, 0]
