"""Right tokens in any chunking, from any sampler."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from graphpod_policy import Policy
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.graphs.segments.addresses import AddressChanged
from tests.unit.runtime.conftest import random_prompts

POLICIES = [
    (Policy.Disabled, Policy.Disabled),
    (Policy.Breakable, Policy.Full),
    (Policy.Piecewise, Policy.Full),
    (Policy.Breakable, Policy.Breakable),
]


@pytest.mark.parametrize("policies", POLICIES)
def test_a_tiny_tail_chunk_gives_the_tokens_of_one_chunk(
    started: Callable[..., Runner], policies: tuple[Policy, Policy]
) -> None:
    runner = started(*policies)
    (prompt,) = random_prompts(1, shortest=29, longest=29)
    firsts = []
    for bounds in ((0, 29), (0, 28, 29), (0, 1, 29), (0, 13, 14, 29)):
        sequence = Sequence("0", list(prompt), 29, 1, pages=runner.pages.take(8))
        for start, end in pairwise(bounds):
            (token,) = runner.forward(PrefillBatch((Chunk(sequence, start, end),))).tokens
            assert (token == -1) == (end < 29)
        firsts.append(token)
    assert len(set(firsts)) == 1


@pytest.mark.parametrize("policies", POLICIES)
def test_chunks_of_several_sequences_share_a_pass(
    started: Callable[..., Runner], policies: tuple[Policy, Policy]
) -> None:
    runner = started(*policies)
    prompts = random_prompts(4, shortest=3, longest=12)
    alone = [answer[0] for answer in generate(runner, prompts, 1)]
    chunks = []
    for prompt in prompts:
        sequence = Sequence("0", list(prompt), len(prompt), 1, pages=runner.pages.take(3))
        runner.forward(PrefillBatch((Chunk(sequence, 0, 2),)))
        chunks.append(Chunk(sequence, 2, len(prompt)))
    assert runner.forward(PrefillBatch(tuple(chunks))).tokens == alone


def test_a_seed_gives_the_same_text_alone_and_in_a_batch(started: Callable[..., Runner]) -> None:
    runner = started()
    prompts = random_prompts(4)
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=11)
    together = generate(runner, prompts, 8, sampling, ignore_eos=True)
    alone = [generate(runner, [prompt], 8, sampling, ignore_eos=True)[0] for prompt in prompts]
    assert together == alone
    other = generate(runner, prompts, 8, Sampling(temperature=1.0, top_p=0.9, seed=12), ignore_eos=True)
    assert other != together


def test_prompts_that_do_not_fit_are_refused(started: Callable[..., Runner]) -> None:
    runner = started(Policy.Disabled, Policy.Disabled)
    with pytest.raises(ValueError, match="prompt 1 has 127 tokens"):
        generate(runner, [[3], [3] * 127], 2)
    with pytest.raises(ValueError, match="prompt 0 has 0 tokens"):
        generate(runner, [[]], 2)


def test_pages_come_back(started: Callable[..., Runner]) -> None:
    runner = started(Policy.Disabled, Policy.Disabled)
    before = runner.pages.available
    generate(runner, random_prompts(12), 5)
    assert runner.pages.available == before == runner.pages.capacity


def test_a_moved_weight_is_noticed_before_a_replay_when_addresses_are_checked(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "addresses")
    runner = started()
    generate(runner, [[5, 6, 7]], 2)
    norm = runner._engine.model.module().get_parameter("norm.weight")
    norm.data = norm.data.clone()
    with pytest.raises(AddressChanged, match=r"norm\.weight was reallocated"):
        generate(runner, [[5, 6, 7]], 2)
