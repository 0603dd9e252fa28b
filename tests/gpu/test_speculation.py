"""Passes over drafts on a GPU: the texts without drafts in fp32, near-ties in 16 bits, no waiting for the device."""

from collections.abc import Callable

import pytest
import torch

from graphpod_policy import Device, Phase, Policy, SpeculativeMethod
from graphpod_runtime.engine.offline import answers
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from tests.unit.runtime.conftest import random_prompts
from truth import models
from truth.axes import Variant
from truth.cell import Outcome
from truth.drafting.oracle import knows
from truth.matrix import Matrix, run
from truth.scenarios import SCENARIOS, Name

NGRAM = {"speculative": SpeculativeMethod.Ngram, "speculative_max_batch": 8}


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 0.95, seed=3)], ids=["greedy", "drawn"])
@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable, Policy.Disabled])
def test_texts_are_those_without_drafts(started: Callable[..., Runner], decode: Policy, sampling: Sampling) -> None:
    prompts = random_prompts(8)
    plain = answers(started(Policy.Breakable, decode), prompts, 40, sampling, ignore_eos=True)
    runner = started(Policy.Breakable, decode, **NGRAM)
    knows(runner, ([*prompt, *answer.tokens] for prompt, answer in zip(prompts, plain, strict=True)))
    drafted = answers(runner, prompts, 40, sampling, ignore_eos=True)
    assert [one.tokens for one in drafted] == [one.tokens for one in plain]
    proposed = runner.counters.value("graphpod_speculation_proposed_tokens_total", method="Ngram")
    accepted = runner.counters.value("graphpod_speculation_accepted_tokens_total", method="Ngram")
    assert 0.3 * proposed < accepted < proposed


def test_texts_in_16_bits_and_in_fp8_are_eagers_but_for_near_ties() -> None:
    """Logits depend on the batch there: the truth matrix knows how much."""
    subjects = tuple(one for one in models.subjects(Device.Cuda) if not one.fixed)
    names = (Name.Drafts, Name.DraftsPrefixHit, Name.DraftsRequests, Name.DraftsLogprobs)
    scenarios = tuple(one for one in SCENARIOS if one.name in names)
    variants = (Variant(Policy.Breakable, Policy.Full), Variant(Policy.Breakable, Policy.Breakable))
    found = run(Matrix(Device.Cuda, subjects, variants, scenarios), lambda done, of, cell: None)
    assert [str(cell) + cell.summary for cell in found if cell.outcome is not Outcome.Passed] == []
    assert len(found) == len(subjects) * len(variants) * len(names)


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_a_serving_step_waits_for_the_device_only_by_its_event(started: Callable[..., Runner], decode: Policy) -> None:
    runner = started(Policy.Breakable, decode, **NGRAM)
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 8), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    for index, prompt in enumerate(random_prompts(8, shortest=5, longest=30)):
        wants = LogprobRequest(answer=2 if index % 4 == 0 else None)
        sampling = Sampling() if index % 2 else Sampling(0.8, 0.95, seed=3)
        scheduler.submit(Sequence(str(index), prompt, len(prompt), 60, sampling, ignore_eos=True, wants=wants))
    while scheduler.waiting or scheduler._prompts.under_way:
        run_ahead.turn()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            run_ahead.turn()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    while run_ahead.busy:
        run_ahead.turn()
    assert scheduler.kv.available == runner.pages.capacity
    assert runner.counters.value("graphpod_graph_fallbacks_total", phase=Phase.Decode) == 0
