"""Whole answers with logit processors are those of transformers and of the definitions; one that leaves no token ends
its request alone."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from graphpod_policy import Policy
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.offline import answers
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Progress, Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.wire.logit_processing import LogitProcessing
from graphpod_runtime.wire.messages import FinishReason
from tests.unit.runtime.conftest import random_prompts
from tests.unit.runtime.kernels.test_logit_edits import reference

NEW = 24
KINDS = (
    LogitProcessing(repetition=1.3),
    LogitProcessing(frequency=2.0, presence=0.5),
    LogitProcessing(bias=dict.fromkeys(range(100), -100.0), repetition=0.8),
    LogitProcessing(allowed=[2, *range(40, 60)], min_tokens=11),
    LogitProcessing(bad_words=[[token] for token in range(3, 90)] + [[120, 121], [150, 3, 150]], presence=2.0),
)


def naive(model: LlamaForCausalLM, prompt: list[int], how: LogitProcessing) -> list[int]:
    """The greedy answer by the definitions, the whole text computed for every token."""
    sequence = Sequence("naive", list(prompt), len(prompt), NEW, Sampling(processing=how))
    while len(sequence.tokens) < len(prompt) + NEW:
        with torch.no_grad():
            row = model(torch.tensor([sequence.tokens])).logits[0, -1]
        # The tiny model ends with another token than the reference's.
        changed = torch.tensor(reference(row.tolist(), sequence))
        if len(sequence.tokens) - len(prompt) < how.min_tokens:
            changed[30], changed[2] = row[30] if how.allowed is None else -torch.inf, -torch.inf
        sequence.tokens.append(int(changed.argmax()))
        if sequence.tokens[-1] == 2:
            break
    return sequence.tokens[len(prompt) :]


@pytest.mark.parametrize("how", KINDS, ids=["repetition", "frequency", "bias", "allowed", "bad words"])
def test_greedy_answers_are_those_of_the_definitions(
    started: Callable[..., Runner], llama_folder: Path, how: LogitProcessing
) -> None:
    """Together, on graphs, one pass ahead."""
    prompts = random_prompts(6, longest=40, seed=8)
    model = LlamaForCausalLM.from_pretrained(llama_folder, dtype=torch.float32).eval()
    expected = [naive(model, prompt, how) for prompt in prompts]
    found = answers(started(), prompts, NEW, Sampling(processing=how))
    assert [list(one.tokens) for one in found] == expected


def test_log_probabilities_are_the_models_own(started: Callable[..., Runner]) -> None:
    """Before any processor, as they are before temperature and filters."""
    (prompt,) = random_prompts(1, seed=9)
    runner, wants = started(), LogprobRequest(answer=1)
    (plain,) = answers(runner, [prompt], 1, Sampling(), wants)
    second = plain.logprobs[0].token
    (biased,) = answers(runner, [prompt], 1, Sampling(processing=LogitProcessing(bias={second: -100.0})), wants)
    assert biased.tokens != plain.tokens
    assert biased.logprobs[0].top[0] == pytest.approx(plain.logprobs[0].top[0])
    assert biased.logprobs[0].logprob < plain.logprobs[0].logprob


def test_a_request_whose_masks_leave_nothing_ends_alone_and_spoils_no_page(started: Callable[..., Runner]) -> None:
    runner = started()
    runner.pages = PageAllocator(64)
    (prompt,) = random_prompts(1, shortest=20, longest=20, seed=10)
    scheduler = Scheduler(runner.pages, Limits.serving(runner.config), runner.eos_ids)
    run_ahead, ended = RunAhead(scheduler, runner), dict[str, Progress]()
    stuck = LogitProcessing(allowed=[2, 9], bad_words=[[9, 9]], min_tokens=30, bias={9: 100.0})
    for id, how in (("stuck", stuck), ("free", LogitProcessing(presence=1.0))):
        sampling = Sampling(processing=how)
        scheduler.submit(Sequence(id, list(prompt), len(prompt), 6, sampling, ignore_eos=True))
    while run_ahead.busy:
        ended |= {one.sequence.id: one for one in run_ahead.turn() if one.finish is not None}
    assert ended["stuck"].finish is FinishReason.Error
    assert "after 1 tokens" in str(ended["stuck"].message)
    assert ended["free"].finish is FinishReason.Length
    assert len(ended["free"].sequence.tokens) == len(prompt) + 6
    assert scheduler.nonfinite == 0
    assert not runner.pages.unclean
    # The prompt's pages are still found: the request was the mistake, not they.
    scheduler.submit(Sequence("again", list(prompt), len(prompt), 1))
    while run_ahead.busy:
        run_ahead.turn()
    assert scheduler.kv.hit_tokens > 0
    assert scheduler.kv.available == runner.pages.capacity


@pytest.mark.parametrize("policy", [Policy.Disabled, Policy.Full])
def test_min_tokens_masks_stop_tokens_and_the_end_until_they_are_reached(
    started: Callable[..., Runner], policy: Policy
) -> None:
    """Each would be the likeliest token at once."""
    runner = started(Policy.Breakable, policy)
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 8), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    for least in (0, 1, 2, 7):
        how = LogitProcessing(min_tokens=least, bias={2: 90.0, 5: 100.0})
        scheduler.submit(Sequence(str(least), [7, 8], 2, 9, Sampling(processing=how), stop_ids=(5,)))
    found = {}
    while run_ahead.busy:
        found |= {one.sequence.id: one for one in run_ahead.turn() if one.finish is not None}
    for least in (0, 1, 2, 7):
        one = found[str(least)]
        assert one.finish is FinishReason.Stop
        assert len(one.sequence.tokens) - 2 == least + 1
        assert one.token == 5
