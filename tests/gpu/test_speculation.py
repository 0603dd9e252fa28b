"""Passes over drafts on a GPU: the texts without drafts in fp32, right drafts in 16 bits, no waiting for the device."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphpod_policy import KvCacheDtype, Phase, Policy, SpeculativeMethod
from graphpod_runtime.engine.offline import answers
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Limits, Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from tests.unit.runtime.conftest import random_prompts
from truth.drafts import knows

NGRAM = {"speculative": SpeculativeMethod.Ngram}
WIDE = {"dtype": "bfloat16", "page_size": 16, "kv_cache_bytes": 64 << 20, "max_model_len": 256}


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


@pytest.mark.parametrize("kv_cache_dtype", [KvCacheDtype.Auto, KvCacheDtype.Fp8])
def test_flashinfer_the_drafts_of_a_text_are_found_right(
    started: Callable[..., Runner], wide_folder: Path, kv_cache_dtype: KvCacheDtype
) -> None:
    """In 16 bits a row's logits depend on the batch: nearly all of a text's own tokens are right as drafts."""
    settings: dict[str, Any] = {"folder": wide_folder, "kv_cache_dtype": kv_cache_dtype, **WIDE}
    prompts = random_prompts(4)
    plain = answers(started(**settings), prompts, 40, ignore_eos=True)
    runner = started(**settings, **NGRAM)
    assert "flashinfer" in runner.engine.attention.name
    knows(runner, ([*prompt, *answer.tokens] for prompt, answer in zip(prompts, plain, strict=True)), wrong=10**6)
    answers(runner, prompts, 40, ignore_eos=True)
    proposed = runner.counters.value("graphpod_speculation_proposed_tokens_total", method="Ngram")
    accepted = runner.counters.value("graphpod_speculation_accepted_tokens_total", method="Ngram")
    assert accepted > 0.6 * proposed


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_a_serving_step_waits_for_the_device_only_by_its_event(started: Callable[..., Runner], decode: Policy) -> None:
    runner = started(Policy.Breakable, decode, **NGRAM)
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 8), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    for index, prompt in enumerate(random_prompts(8, shortest=5, longest=30)):
        wants = LogprobRequest(answer=2 if index % 4 == 0 else None)
        sampling = Sampling() if index % 2 else Sampling(0.8, 0.95, seed=3)
        scheduler.submit(Sequence(str(index), prompt, len(prompt), 60, sampling, ignore_eos=True, wants=wants))
    while scheduler.waiting or scheduler._prefilling:
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
