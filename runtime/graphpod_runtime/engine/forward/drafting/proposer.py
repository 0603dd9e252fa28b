"""What drafts the tokens that a decode step verifies."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from graphpod_runtime.distributed.collectives import from_first_rank
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, TOKEN
from graphpod_runtime.kernels.rows.prompt_lookup import Found, looked_up


class Proposer(Protocol):
    """A method of speculative decoding. It reads what the device keeps, so the host waits for nothing."""

    def propose(self, state: Tensor, seats: Tensor, slot_tokens: Tensor, pages: int) -> Found:
        """Drafts behind the latest tokens of `seats` [entries] of `state` (`kernels/rows/draft_rows.py`), none of which
        has more than so many `pages`. The earlier tokens of each lie in `slot_tokens` [pages, page_size].
        """


class Ngram:
    """Prompt look-up."""

    def __init__(self, drafts: int) -> None:
        """So many for each sequence."""
        self._drafts = drafts

    def propose(self, state: Tensor, seats: Tensor, slot_tokens: Tensor, pages: int) -> Found:
        own = state[seats]
        lengths = own[:, LENGTH]
        texts = slot_tokens[own[:, PAGES : PAGES + pages]].flatten(1).long()
        # The latest token gets its slot by the step that this is for.
        texts = torch.scatter(texts, 1, lengths[:, None] - 1, own[:, TOKEN, None])
        return looked_up(texts, lengths, self._drafts)


@dataclass(frozen=True, slots=True)
class OfFirstRank:
    """Drafts of the first rank at every rank: a rank that verified others would sum up parts of other tokens. `own`:
    what drafts; None at a rank that has no part in it."""

    drafts: int
    own: Proposer | None

    def propose(self, state: Tensor, seats: Tensor, slot_tokens: Tensor, pages: int) -> Found:
        if self.own is not None:
            found = self.own.propose(state, seats, slot_tokens, pages)
            return found._replace(drafts=from_first_rank(found.drafts))
        drafts = torch.zeros(len(seats), self.drafts, dtype=torch.int64, device=seats.device)
        return Found(from_first_rank(drafts), torch.ones(len(seats), dtype=torch.bool, device=seats.device))
