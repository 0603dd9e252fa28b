"""All steps of a draft head as one pass that gives trees: each step follows the likeliest branches of the one before.

The first step is that of a chain. Each further one has a row for each of the `branches` likeliest nodes of the level
above, next to the head's own prediction of their state, and gives as many tokens behind each. Of all these the
likeliest ones are the tree; a node is as likely as its branch. Nodes of one level lie in KV slots behind each other,
and see their ancestors only. The next pass overwrites them: it reads the right branch again, by the model's states.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.engine.forward.drafting.head_steps import HeadSteps
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, ROOM
from graphpod_runtime.kernels.rows.draft_trees import Candidates, grown, hidden_behind, likeliest
from graphpod_runtime.models.heads.draft_head import DraftHead


class TreeSteps(HeadSteps):
    """Trees of `nodes` drafts, at most `count` of which follow each other, for each of up to `sequences` seats."""

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
        branches: int,
        nodes: int,
    ) -> None:
        """As HeadSteps, with so many `branches` of a level."""
        super().__init__(head, attention, count, sequences, state, slot_tokens, dtype, branches=branches)
        self._branches, self._nodes = branches, nodes + 1
        self._buffers = Buffers(
            Slot("seats", sequences, (), torch.int64, padding=len(state) - 1),
            Slot("drafts", sequences, (4, self._nodes), torch.int64, padding=None),
            device=state.device,
        )

    def _run(self, size: int, attend: Attend) -> None:
        own = self._state.index_select(0, self._buffers.view("seats", size))
        states = self._first(own, self._buffers.view("seats", size), attend)
        self._buffers.view("drafts", size).copy_(
            grown(self._candidates(own, states, attend), self._nodes, deepest=self.count)
        )

    def _candidates(self, own: Tensor, states: Tensor, attend: Attend) -> Candidates:
        """Those behind the predictions `states` [size, hidden] for the seats `own` [size, PAGES + pages]."""
        size, width = own.shape[0], self._branches
        lengths, room = own[:, LENGTH, None], own[:, ROOM, None]
        tables = own[:, PAGES:].repeat_interleave(width, 0)
        self._rows.own(tables)
        at = torch.arange(width, device=own.device)
        tokens, scores = self._head.branches(states, width)
        states = states.repeat_interleave(width, 0)
        # Level by level. `place` of a branch is its number among all candidates.
        place, hidden = at.expand(size, -1), hidden_behind(torch.zeros_like(tokens), at + 1)
        found = [Candidates(tokens, torch.full_like(tokens, -1), torch.ones_like(tokens), scores)]
        for step in range(1, self.count):
            ends = lengths + (step - 1) * width + at
            real = (ends <= room).flatten()
            self._rows.plan(tokens.flatten(), ends.flatten(), tables, real, hidden.flatten())
            positions = (lengths + step - 2).expand(-1, width).flatten().where(real, 0)
            states = self._head(tokens.flatten(), states, positions, attend)
            following, gained = (part.view(size, -1) for part in self._head.branches(states, width))
            scored = scores.repeat_interleave(width, 1) + gained
            above, depths = place.repeat_interleave(width, 1), torch.full_like(following, step + 1)
            found.append(Candidates(following, above, depths, scored))
            scores, chosen = likeliest(scored, width)
            parents, first = chosen // width, width + (step - 1) * width * width
            tokens, place = following.gather(1, chosen), first + chosen
            hidden = hidden_behind(hidden.gather(1, parents), width + at - parents)
            states = states.view(size, width, -1).gather(1, parents[..., None].expand(-1, -1, states.shape[1]))
            states = states.flatten(0, 1)
        return Candidates(*(torch.cat(parts, 1) for parts in zip(*found, strict=True)))
