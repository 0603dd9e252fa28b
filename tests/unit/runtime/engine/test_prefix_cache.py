"""An engine with a prefix cache gives the texts of one without, fp32: prefixes are only not computed again."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from graphpod_policy import Policy
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.wire.logit_processing import LogitProcessing
from tests.unit.runtime.conftest import random_prompts

POLICIES = [(Policy.Disabled, Policy.Disabled), (Policy.Breakable, Policy.Full)]
PENALTIES = LogitProcessing(repetition=1.5, frequency=0.5, bad_words=[[5, 6], [9]], bias={11: 2.0})
KINDS = (
    Sampling(),
    Sampling(1.0, 0.9, seed=4, processing=PENALTIES),
    Sampling(1.3, top_k=30, min_p=0.01, seed=5),
)
"""The penalised ones read prompts of which a prefix was computed by requests without penalties."""
TURNS = 3
TOKENS = 9
(SHARED,) = random_prompts(1, shortest=44, longest=44, seed=5)


def first_turn() -> list[Sequence]:
    """Prompts that share 28, 36 or 44 tokens, greedy and sampled; one is scored from its beginning."""
    prompts = [[*SHARED[: 44 - 8 * (index % 3)], *tail] for index, tail in enumerate(random_prompts(6, longest=24))]
    return [
        Sequence(
            f"0.{index}", prompt, len(prompt), TOKENS, KINDS[index % 3], ignore_eos=True,
            wants=LogprobRequest(answer=1, prompt=2) if index == 4 else LogprobRequest(),
        )
        for index, prompt in enumerate(prompts)
    ]  # fmt: skip


def conversations(runner: Runner, *, caching: bool) -> tuple[list[Sequence], Scheduler]:
    """Three turns of six conversations; each turn begins with all of the one before it."""
    limits = replace(Limits.of(runner.config, 20), prefix_cache=caching)
    scheduler = Scheduler(runner.pages, limits, runner.eos_ids)
    run_ahead, asked, turn = RunAhead(scheduler, runner), list[Sequence](), first_turn()
    for number in range(1, TURNS + 1):
        for sequence in turn:
            scheduler.submit(sequence)
        while run_ahead.busy:
            run_ahead.turn()
        asked += turn
        turn = [
            Sequence(f"{number}.{index}", [*one.tokens, 5 + index], len(one.tokens) + 1, TOKENS, one.sampling,
                     ignore_eos=True)
            for index, one in enumerate(turn)
        ]  # fmt: skip
    return asked, scheduler


def texts(asked: list[Sequence]) -> dict[str, list[int]]:
    return {sequence.id: sequence.tokens for sequence in asked}


@pytest.mark.parametrize("policies", POLICIES)
def test_texts_of_conversations_do_not_depend_on_the_cache(
    started: Callable[..., Runner], policies: tuple[Policy, Policy]
) -> None:
    runner = started(*policies)
    asked, scheduler = conversations(runner, caching=False)
    assert scheduler.kv.hit_tokens == 0
    expected = texts(asked)
    (scored,) = (one for one in asked if one.wants.prompt is not None)
    again, scheduler = conversations(runner, caching=True)
    assert texts(again) == expected
    later = [one for one in again if not one.id.startswith("0.")]
    for one, before in zip(later, again, strict=False):
        size = runner.config.page_size
        # Whole pages of what the turn before has computed: all of its tokens but the last.
        assert one.cached == (len(before.tokens) - 1) // size * size
    (same,) = (one for one in again if one.wants.prompt is not None)
    assert same.cached == 0, "its first token is scored"
    assert [one.token for one in same.prompt_logprobs] == [one.token for one in scored.prompt_logprobs]
    assert [one.logprob for one in same.prompt_logprobs] == pytest.approx(
        [one.logprob for one in scored.prompt_logprobs], abs=1e-4
    )


def test_texts_do_not_depend_on_a_cache_so_small_that_prefixes_go_and_requests_are_set_back(
    started: Callable[..., Runner],
) -> None:
    runner = started()
    expected = texts(conversations(runner, caching=False)[0])
    runner.pages = PageAllocator(41)
    asked, scheduler = conversations(runner, caching=True)
    assert texts(asked) == expected
    assert scheduler.preemptions > 0
    assert scheduler.kv.tree.evicted > 0
    assert scheduler.kv.available == 40


def test_poison_spoils_no_prefix(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only pages that neither a sequence nor the tree owns hold NaN."""
    expected = texts(conversations(started(), caching=False)[0])
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison")
    runner = started()
    asked, scheduler = conversations(runner, caching=True)
    assert texts(asked) == expected
    assert scheduler.kv.hit_tokens > 0
    cache = runner.engine.attention.cache
    assert cache.keys[:, runner.pages.free_pages[-1]].isnan().all(), "it was poisoned"
    cached = set(range(1, cache.pages)) - set(runner.pages.free_pages)
    assert len(cached) == scheduler.kv.tree.size > 0
    assert cache.keys[:, sorted(cached)].isfinite().all()
