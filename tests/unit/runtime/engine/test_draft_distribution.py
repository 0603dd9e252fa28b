"""Sampled answers have the model's distribution, whatever drafts were right: a chi-square test over seeds."""

from collections import Counter
from itertools import product
from math import prod
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from graphpod_policy import Policy, SpeculativeMethod
from graphpod_runtime.engine.forward.drafting.tree_seats import TreeSeats
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.kernels.rows.draft_trees import Candidates, grown
from graphpod_runtime.kernels.rows.prompt_lookup import Found
from graphpod_runtime.wire.logit_processing import LogitProcessing
from tests.unit.runtime.conftest import random_prompts, write_llama
from tests.unit.runtime.engine.test_draft_heads import Start, counted, drafted_by
from tests.unit.runtime.engine.test_speculation import Served
from tests.unit.runtime.near_head import write_head

SEEDS, TEMPERATURE = 800, 4.0
LENGTH, BEHIND = 3, 3
"""Tokens of an answer that are looked at, and more that are asked for: a tree near an end has fewer drafts."""
AT_ONCE = 32
CHANCE = 1e-3
"""Right answers of other seeds would fail so often."""
RARE = 5
"""Answers that are expected less often are counted together."""


class Branches:
    """Is a Proposer: of the tokens that answers are made of, the same branches behind every text."""

    def __init__(self, tokens: tuple[int, int, int]) -> None:
        one, two, three = tokens
        branches = Candidates(
            torch.tensor([[two, one, three, one]]),
            torch.tensor([[-1, -1, 0, 1]]),
            torch.tensor([[1, 1, 2, 2]]),
            torch.tensor([[-0.1, -0.2, -0.3, -0.4]]),
        )
        self._tree = grown(branches, 5, deepest=2)

    def propose(self, state: Tensor, seats: Tensor, slot_tokens: Tensor, pages: int) -> Found:
        return Found(self._tree.expand(len(seats), -1, -1), torch.ones(len(seats), dtype=torch.bool))


@torch.no_grad()
def chances(model: LlamaForCausalLM, prompt: list[int], tokens: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Of each answer that is made of `tokens`."""
    prefixes = [before for length in range(LENGTH) for before in product(tokens, repeat=length)]
    chance = {}
    for before in prefixes:
        logits = model(torch.tensor([[*prompt, *before]])).logits[0, -1, list(tokens)]
        next_ones = (logits / TEMPERATURE).softmax(0).tolist()
        chance |= {(*before, token): one for token, one in zip(tokens, next_ones, strict=True)}
    return {
        answer: prod(chance[answer[: length + 1]] for length in range(LENGTH))
        for answer in product(tokens, repeat=LENGTH)
    }


def by_chance(found: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """How likely answers of the distribution `expected` are as far from it as `found`, or further (Pearson)."""
    cells: dict[tuple[int, ...], list[float]] = {}
    for answer, share in expected.items():
        wanted = found.total() * share
        cell = cells.setdefault(answer if wanted >= RARE else (), [0.0, 0.0])
        cell[0] += wanted
        cell[1] += found[answer]
    assert len(cells) > 10, "answers are of few kinds"
    distance = sum((seen - wanted) ** 2 / wanted for wanted, seen in cells.values())
    half = torch.tensor([(len(cells) - 1) / 2, distance / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(*half))


def test_sampled_answers_with_trees_have_the_distribution_of_the_model(started: Start, tmp_path: Path) -> None:
    """Of three tokens, some of which are in the tree: a rule that took drafts too often, or too seldom, would favour
    their branches."""
    folder, head = write_llama(tmp_path, num_hidden_layers=1), tmp_path / "head"
    head.mkdir()
    write_head(folder, head, SpeculativeMethod.Eagle)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    (prompt,) = random_prompts(1, shortest=9, longest=9)
    with torch.no_grad():
        one, two, three = model(torch.tensor([prompt])).logits[0, -1].topk(3).indices.tolist()
    tokens = (one, two, three)
    tree = {"speculative_steps": 2, "speculative_topk": 2, "speculative_draft_tokens": 4}
    batch = {"max_batch": AT_ONCE, "speculative_max_batch": AT_ONCE}
    runner = started(Policy.Disabled, Policy.Disabled, folder=folder, **drafted_by(head, **tree, **batch))
    seats = runner.engine.seats
    assert isinstance(seats, TreeSeats)
    seats.proposer = Branches(tokens)
    served = Served(runner)
    only = LogitProcessing(bias=dict.fromkeys(tokens, 100.0))
    for seed in range(SEEDS):
        drawn = Sampling(TEMPERATURE, seed=seed, processing=only)
        served.submit(str(seed), prompt, LENGTH + BEHIND, drawn, ignore_eos=True)
        if seed % AT_ONCE == AT_ONCE - 1:
            served.drain()
    expected = chances(model, prompt, tokens)
    found = Counter(tuple(answer[:LENGTH]) for answer in served.got.values())
    assert set(found) <= set(expected)
    proposed, accepted = counted(runner)
    assert 0.2 * proposed < accepted < 0.5 * proposed
    assert by_chance(found, expected) > CHANCE
    even = dict.fromkeys(expected, 1 / len(expected))
    assert by_chance(found, even) < CHANCE / 1000, "the test can tell distributions apart"
