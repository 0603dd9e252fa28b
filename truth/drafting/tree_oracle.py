"""A proposer whose trees have the text that follows somewhere, between wrong drafts and right ones said twice."""

import random
from collections.abc import Iterable
from collections.abc import Sequence as List

import torch
from torch import Tensor

from graphpod_runtime.engine.forward.drafting.proposer import Proposer
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, TOKEN
from graphpod_runtime.kernels.rows.draft_trees import Candidates, grown
from graphpod_runtime.kernels.rows.prompt_lookup import Found
from truth.models import VOCAB


class TreeOracle:
    """Is a Proposer. Its trees have `drafts` nodes, no branch of more than `deepest`; behind a text that is none of
    `texts`, wrong ones."""

    def __init__(
        self, texts: Iterable[List[int]], drafts: int, deepest: int, beneath: Proposer, *, strict: bool = False
    ) -> None:
        """`beneath` drafts, too, and its trees are dropped: its keys, values and graphs are as without an oracle.
        `strict`: AssertionError where the device has a text that is none of `texts`."""
        self._texts, self._drafts, self._deepest = [list(text) for text in texts], drafts, deepest
        self._beneath, self._random, self._strict = beneath, random.Random(drafts), strict

    def propose(self, state: Tensor, seats: Tensor, slot_tokens: Tensor, pages: int) -> Found:
        self._beneath.propose(state, seats, slot_tokens, pages)
        trees = []
        for own in state[seats].cpu():
            length = int(own[LENGTH])
            there = [*slot_tokens[own[PAGES : PAGES + pages]].flatten().tolist()[: length - 1], int(own[TOKEN])]
            known = [text for text in self._texts if text[:length] == there]
            assert known or not self._strict, f"the device has a text that is none: {there}"
            trees.append(self._tree(known[0][length : length + self._deepest] if known else []))
        return Found(torch.cat(trees).to(state.device), torch.ones(len(seats), dtype=torch.bool, device=state.device))

    def _tree(self, follows: list[int]) -> Tensor:
        rows: list[tuple[int, int, int, float]] = []
        drawn, tip, reached = self._random, -1, 0
        while len(rows) < 2 * self._drafts:
            right = reached < len(follows) and drawn.random() < 0.35
            above = [-1, *(at for at, row in enumerate(rows) if row[2] < self._deepest)]
            parent = tip if right else drawn.choice(above)
            depth, score = (rows[parent][2], rows[parent][3]) if parent >= 0 else (0, 0.0)
            said_twice = depth < len(follows) and drawn.random() < 0.15
            token = follows[depth] if right or said_twice else drawn.randrange(3, VOCAB)
            if right:
                tip, reached = len(rows), depth + 1
            rows.append((token, parent, depth + 1, score - drawn.random() * (0.1 if right else 1.0)))
        candidates = Candidates(*(torch.tensor([part]) for part in zip(*rows, strict=True)))
        return grown(candidates, self._drafts + 1, self._deepest)
