"""A proposer that knows what the model will say, and is right as often as is wanted."""

from collections.abc import Iterable
from collections.abc import Sequence as List

import torch
from torch import Tensor

from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.forward.drafting.proposer import OfFirstRank, Proposer
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, TOKEN
from graphpod_runtime.kernels.rows.prompt_lookup import Found
from truth.drafting.tree_oracle import TreeOracle


class Oracle:
    """Is a Proposer. A draft at a place of a text is the text's own token, but for a wrong one at every `wrong`-th."""

    def __init__(self, texts: Iterable[List[int]], count: int, wrong: int, beneath: Proposer | None = None) -> None:
        """`beneath` drafts, too, and its drafts are dropped."""
        self._texts, self._count, self._wrong = [list(text) for text in texts], count, wrong
        self.beneath = beneath

    def propose(self, state: Tensor, seats: Tensor, slot_tokens: Tensor, pages: int) -> Found:
        if self.beneath is not None:
            self.beneath.propose(state, seats, slot_tokens, pages)
        drafts = torch.zeros(len(seats), self._count, dtype=torch.int64)
        for row, own in zip(drafts, state[seats].cpu(), strict=True):
            length = int(own[LENGTH])
            there = [*slot_tokens[own[PAGES : PAGES + pages]].flatten().tolist()[: length - 1], int(own[TOKEN])]
            for text in self._texts:
                if text[:length] == there:
                    follows = text[length : length + self._count]
                    for at, token in enumerate(follows):
                        row[at] = token if (length + at) % self._wrong else max(1, token) - 1
                    break
        return Found(drafts.to(state.device), torch.ones(len(seats), dtype=torch.bool, device=state.device))


def knows(runner: Runner, texts: Iterable[List[int]], wrong: int = 5, *, strict: bool = False) -> Runner:
    """`runner`, whose drafts are `texts` (prompt and answer) from now on, and whose trees have them; `strict` as
    TreeOracle has it."""
    seats, asked = runner.engine.seats, runner.config.feature_set()
    assert isinstance(seats, DraftingSeats)
    count = asked.verify_width - 1
    # A head's graphs run as they do without it, and its states follow right drafts and wrong ones.
    if asked.draft_trees:
        assert seats.head is not None, "only heads draft trees"
        oracle: Proposer = TreeOracle(texts, count, asked.speculative_steps, seats.head, strict=strict)
    else:
        oracle = Oracle(texts, count, wrong, seats.head)
    seats.proposer = oracle if runner.config.features.ranks == 1 else OfFirstRank(count, oracle)
    return runner
