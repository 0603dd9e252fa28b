"""Log-probabilities are transformers' log_softmax, of every row that was asked for, whatever runs it and in how many
chunks."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM

from graphpod_policy import Phase, Policy
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.forward.sampling import logprobs
from graphpod_runtime.engine.offline import Answer, answers, generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from tests.unit.runtime.conftest import random_prompts, write_family

ROUNDING = 1e-4
ALL = LogprobRequest(answer=3, prompt=3)
EAGER = (Policy.Disabled, Policy.Disabled)
POLICIES = [EAGER, (Policy.Breakable, Policy.Full), (Policy.Breakable, Policy.Breakable)]


def reference(folder: Path, tokens: list[int]) -> Tensor:
    """transformers' log-probabilities [tokens, vocab]: row i is about token i + 1."""
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(torch.tensor([tokens])).logits[0]
    return torch.log_softmax(logits, -1)


def check(folder: Path, prompt: list[int], answer: Answer, top: int = 3) -> None:
    """Every log-probability of `answer` is the reference's."""
    text = [*prompt, *answer.tokens]
    expected = reference(folder, text)
    got = [*answer.prompt_logprobs, *answer.logprobs]
    assert [one.token for one in got] == text[1:]
    for row, one in zip(expected, got, strict=False):
        assert one.logprob == pytest.approx(float(row[one.token]), abs=ROUNDING)
        likeliest = row.topk(top)
        assert [id for id, _ in one.top] == likeliest.indices.tolist()
        assert [value for _, value in one.top] == pytest.approx(likeliest.values.tolist(), abs=ROUNDING)


@pytest.mark.parametrize("policies", POLICIES)
def test_prompt_and_answer_have_transformers_log_probabilities(
    started: Callable[..., Runner], llama_folder: Path, policies: tuple[Policy, Policy]
) -> None:
    prompts = [*random_prompts(4), [9], random_prompts(1, shortest=100, longest=100)[0]]
    runner = started(*policies)
    for prompt, answer in zip(prompts, answers(runner, prompts, 6, wants=ALL, ignore_eos=True), strict=True):
        check(llama_folder, prompt, answer)
    for phase, policy in zip(Phase, policies, strict=True):
        fallbacks = runner.counters.value("graphpod_graph_fallbacks_total", phase=phase)
        assert (fallbacks > 0) == (policy is Policy.Disabled)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_other_families_too(started: Callable[..., Runner], tmp_path: Path, family: str) -> None:
    folder = write_family(tmp_path, family)
    (prompt,) = random_prompts(1, shortest=40)
    (answer,) = answers(started(folder=folder), [prompt], 4, wants=ALL, ignore_eos=True)
    check(folder, prompt, answer)


@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_graphs_give_eagers_log_probabilities_bit_for_bit_where_nothing_is_padded(
    started: Callable[..., Runner], decode: Policy
) -> None:
    """32 tokens a pass, two prompts, after each of which all that are there decode: sizes of the ladder."""
    prompts = random_prompts(8, shortest=16, longest=16)
    eager, graphs = started(*EAGER), started(Policy.Breakable, decode, decode_sizes=(2, 4, 6, 8))
    expected, got = (answers(runner, prompts, 6, wants=ALL, ignore_eos=True) for runner in (eager, graphs))
    assert got == expected
    assert graphs.counters.value("graphpod_eager_passes_total") == 0


def test_nothing_is_told_that_was_not_asked(started: Callable[..., Runner]) -> None:
    runner = started(*EAGER)
    prompts = random_prompts(2, shortest=5)
    plain = answers(runner, prompts, 3)
    assert [(answer.logprobs, answer.prompt_logprobs) for answer in plain] == [((), ())] * 2
    (own,) = answers(runner, prompts[:1], 3, wants=LogprobRequest(answer=0))
    assert [one.top for one in own.logprobs] == [()] * 3
    assert own.prompt_logprobs == ()
    assert own.tokens == plain[0].tokens


def test_requests_of_one_batch_get_what_each_asked_for(started: Callable[..., Runner]) -> None:
    runner = started()
    prompts = random_prompts(3, shortest=4, longest=9)
    wanted = [LogprobRequest(), LogprobRequest(answer=1), LogprobRequest(answer=4, prompt=2)]
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 3), runner.eos_ids)
    sequences = [
        Sequence(str(index), list(prompt), len(prompt), 3, ignore_eos=True, wants=wants)
        for index, (prompt, wants) in enumerate(zip(prompts, wanted, strict=True))
    ]
    for sequence in sequences:
        scheduler.submit(sequence)
    tops: dict[str, list[int | None]] = {sequence.id: [] for sequence in sequences}
    while (batch := scheduler.next()) is not None:
        for progress in scheduler.advance(batch, runner.forward(batch)):
            top = progress.logprob and len(progress.logprob.top)
            tops[progress.sequence.id].append(top)
    assert tops == {"0": [None] * 3, "1": [1] * 3, "2": [4] * 3}
    assert [len(sequence.prompt_logprobs) for sequence in sequences] == [0, 0, len(prompts[2]) - 1]
    assert {len(one.top) for one in sequences[2].prompt_logprobs} == {2}


def test_a_drawn_token_has_the_models_own_log_probability(started: Callable[..., Runner], llama_folder: Path) -> None:
    """Temperature and top_p shape the draw, not what is told of it."""
    (prompt,) = random_prompts(1)
    (answer,) = answers(started(), [prompt], 6, Sampling(2.0, 0.9, seed=4), ALL, ignore_eos=True)
    check(llama_folder, prompt, answer)
    assert any(one.token != one.top[0][0] for one in answer.logprobs)


def test_a_start_within_the_prompt_scores_from_there_and_one_at_its_end_nothing(
    started: Callable[..., Runner], llama_folder: Path
) -> None:
    runner = started()
    (prompt,) = random_prompts(1, shortest=50, longest=50)
    expected = reference(llama_folder, prompt)
    for start, first in ((0, 1), (1, 1), (2, 2), (33, 33), (49, 49), (50, 50), (90, 50)):
        wants = LogprobRequest(prompt=0, prompt_start=start)
        (answer,) = answers(runner, [prompt], 1, wants=wants)
        assert [one.token for one in answer.prompt_logprobs] == prompt[first:]
        wanted = [float(expected[at - 1, prompt[at]]) for at in range(first, 50)]
        assert [one.logprob for one in answer.prompt_logprobs] == pytest.approx(wanted, abs=ROUNDING)
        batch = PrefillBatch((Chunk(Sequence("0", list(prompt), 50, 1, wants=wants), 0, 50),))
        assert batch.scores_prompt == (first < 50)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_log_probabilities_of_16_bit_logits_are_computed_in_single_precision(dtype: torch.dtype) -> None:
    """In 8 bits of mantissa a sum over the vocabulary stops growing, and log-probabilities are multiples of 1/16."""
    logits = (torch.randn(4, 50_000, generator=torch.Generator().manual_seed(5)) * 2).to(dtype)
    expected = torch.log_softmax(logits.double(), -1)
    tokens = [3, 14, 15, 926]
    for row, token, one in zip(
        expected, tokens, logprobs.of_logits(logits, torch.tensor(tokens), 3).to_list(), strict=True
    ):
        assert one.logprob == pytest.approx(float(row[token]), abs=1e-5)
        assert [value for _, value in one.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-5)


def test_a_preempted_request_scores_every_prompt_token_once(started: Callable[..., Runner]) -> None:
    runner = started()
    prompts = random_prompts(6, shortest=20, longest=40)
    expected = answers(runner, prompts, 20, wants=ALL, ignore_eos=True)
    runner.pages = PageAllocator(36)
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 6), runner.eos_ids)
    sequences = [Sequence(str(i), list(p), len(p), 20, ignore_eos=True, wants=ALL) for i, p in enumerate(prompts)]
    told = {sequence.id: 0 for sequence in sequences}
    for sequence in sequences:
        scheduler.submit(sequence)
    while (batch := scheduler.next()) is not None:
        for progress in scheduler.advance(batch, runner.forward(batch)):
            told[progress.sequence.id] += progress.logprob is not None
    assert scheduler.preemptions > 0
    assert set(told.values()) == {20}
    for sequence, answer in zip(sequences, expected, strict=True):
        assert [one.token for one in sequence.prompt_logprobs] == [one.token for one in answer.prompt_logprobs]
        wanted = [one.logprob for one in answer.prompt_logprobs]
        assert [one.logprob for one in sequence.prompt_logprobs] == pytest.approx(wanted, abs=ROUNDING)


def test_logits_of_a_long_prompt_never_exist_at_once(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = started()
    (prompt,) = random_prompts(1, shortest=32, longest=32)
    expected = answers(runner, [prompt], 1, wants=ALL)
    monkeypatch.setattr(logprobs, "LOGIT_BYTES", 4 * 211 * 5)
    model, rows = runner._engine.model, []
    head = model.head

    def counted(hidden: Tensor) -> Tensor:
        rows.append(hidden.shape[0])
        return head(hidden)

    monkeypatch.setattr(model, "head", counted)
    got = answers(runner, [prompt], 1, wants=ALL)
    assert rows == [1, 5, 5, 5, 5, 5, 5, 1]  # the row that yields the token, then 31 rows by fives
    for one, other in zip(got[0].prompt_logprobs, expected[0].prompt_logprobs, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=ROUNDING)


def test_a_prefix_that_would_hide_wanted_rows_is_refused(started: Callable[..., Runner]) -> None:
    runner = started(*EAGER)
    sequence = Sequence("a", [5] * 12, 12, 1, pages=runner.pages.take(3), wants=LogprobRequest(prompt=0))
    sequence.computed = 4
    assert sequence.unscored == 1
    with pytest.raises(ValueError, match=r"request a: .* from prompt position 1 on, and the first 4 tokens are there"):
        runner.forward(PrefillBatch((Chunk(sequence, 4, 12),)))
    sequence.wants = LogprobRequest(prompt=0, prompt_start=5)
    assert [one.token for one in runner.forward(PrefillBatch((Chunk(sequence, 4, 12),))).prompts[0]] == [5] * 7


@given(st.integers(1, 40), st.integers(0, 45), st.lists(st.integers(1, 39), unique=True))
def test_chunks_score_each_wanted_position_once_in_order(length: int, start: int, cuts: list[int]) -> None:
    sequence = Sequence("0", [0] * length, length, 1, wants=LogprobRequest(prompt=0, prompt_start=start))
    found: list[int] = []
    bounds = [0, *sorted(cut for cut in cuts if cut < length), length]
    for first, end in pairwise(bounds):
        chunk = Chunk(sequence, first, end)
        found += chunk.scored
        sequence.prompt_logprobs += [logprobs.Logprob(0, 0.0)] * len(chunk.scored)
    assert found == list(range(max(1, start), length))


def test_asking_changes_no_token(started: Callable[..., Runner]) -> None:
    runner = started()
    prompts = random_prompts(6)
    asked = answers(runner, prompts, 8, wants=ALL, ignore_eos=True)
    assert [list(answer.tokens) for answer in asked] == generate(runner, prompts, 8, ignore_eos=True)
