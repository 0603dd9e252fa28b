"""Processors do to each row what their definitions say, whatever rows are next to it."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from graphpod_runtime.engine.forward.sampling.processors import History
from graphpod_runtime.engine.forward.sampling.sampler import SamplingBatch, greedy
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import NOT_FINITE, NOTHING_LEFT
from graphpod_runtime.kernels.sampling.draw import draw_by_torch
from graphpod_runtime.wire.logit_processing import NO_PROCESSING, LogitProcessing
from tests.tries import tries

from .test_draw import TRIES, filtered

VOCAB, EOS, PAGE = 31, (30,), 4
HOST = torch.device("cpu")
TOKENS = st.integers(0, VOCAB - 1)
RATES = st.floats(-2, 2, width=32)


def processings() -> st.SearchStrategy[LogitProcessing]:
    """Any mixture, most of them partial."""
    return st.builds(
        LogitProcessing,
        allowed=st.none() | st.lists(TOKENS, min_size=1, max_size=12),
        bad_words=st.lists(st.lists(TOKENS, min_size=1, max_size=3), max_size=4),
        min_tokens=st.integers(0, 6),
        bias=st.dictionaries(TOKENS, st.floats(-100, 100, width=32), max_size=5),
        repetition=st.sampled_from([1.0, 0.5, 1.3, 2.0]),
        frequency=st.just(0.0) | RATES,
        presence=st.just(0.0) | RATES,
    )


def requests() -> st.SearchStrategy[Sequence]:
    """Prompt and answer so far; few different tokens, so that they repeat."""

    def made(prompt: list[int], answer: list[int], how: LogitProcessing, stops: list[int]) -> Sequence:
        tokens = [*prompt, *answer]
        sampling = Sampling(processing=how)
        return Sequence("a", tokens, len(prompt), 50, sampling, stop_ids=tuple(stops))

    few = st.integers(0, 7)
    lists = st.lists(few, min_size=1, max_size=9), st.lists(few, max_size=9)
    return st.builds(made, *lists, processings(), st.lists(TOKENS, max_size=2))


def reference(row: list[float], sequence: Sequence) -> list[float]:
    """The definitions, one token at a time."""
    how, answer = sequence.sampling.processing, sequence.tokens[sequence.prompt_len :]
    counts = Counter(answer)
    out = []
    for token, logit in enumerate(row):
        value = torch.tensor(logit)
        if how.allowed is not None and token not in how.allowed:
            value = torch.tensor(-math.inf)
        for *before, last in how.bad_words:
            if token == last and len(answer) >= len(before) and answer[len(answer) - len(before) :] == before:
                value = torch.tensor(-math.inf)
        if len(answer) < how.min_tokens and token in (*EOS, *sequence.stop_ids):
            value = torch.tensor(-math.inf)
        if token in how.bias:
            value = value + how.bias[token]
        if token in sequence.tokens:
            value = value / how.repetition if value > 0 else value * how.repetition
        value = value - torch.tensor(how.frequency) * counts[token]
        value = value - torch.tensor(how.presence) * (counts[token] > 0)
        out.append(float(value))
    return out


def placed(sequences: list[Sequence], spoilt: int = -7) -> Tensor:
    """Pages for each of `sequences`; their slots have never been written."""
    first = 1
    for sequence in sequences:
        count = -(-len(sequence.tokens) // PAGE)
        sequence.pages = list(range(first, first + count))
        first += count
    return torch.full((first, PAGE), spoilt, dtype=torch.int32)


def processed(logits: Tensor, sequence: Sequence) -> Tensor:
    """What the one row of logits [1, vocab] becomes, as the draw reads it."""
    noted: list[Tensor] = []

    def noting(work: Tensor, chosen: Tensor, *_: object) -> Tensor:
        noted.append(work)
        return chosen

    drawing = replace(sequence, sampling=replace(sequence.sampling, temperature=1.0, seed=1))
    slots = placed([drawing])
    batch = SamplingBatch.of((drawing,), noting, HOST, EOS)
    history = History.of_prompts(slots, [drawing], batch.reading) if batch.reading else None
    batch.tokens(logits, greedy(logits), torch.tensor([len(drawing.tokens) - 1]), history)
    return noted[0]


@tries(150)
@given(requests(), st.lists(st.floats(-30, 30, width=32), min_size=VOCAB, max_size=VOCAB))
def test_a_row_becomes_what_the_definitions_say(sequence: Sequence, row: list[float]) -> None:
    expected = torch.tensor(reference(row, sequence))
    found = processed(torch.tensor([row]), sequence)[0]
    assert torch.equal(found, expected)


@given(st.lists(requests(), min_size=2, max_size=6), st.integers(0, 2**31), st.sampled_from([1, 2, 99]))
def test_a_row_chooses_the_same_token_alone_and_next_to_others(
    sequences: list[Sequence], seed: int, at_once: int
) -> None:
    logits = torch.randn(len(sequences), VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    for index, one in enumerate(sequences):
        one.sampling = replace(one.sampling, temperature=index % 2, seed=index)

    def chosen(rows: list[int]) -> list[int]:
        members = tuple(sequences[row] for row in rows)
        slots, own = placed(list(members)), logits[rows]
        batch = SamplingBatch.of(members, draw_by_torch, HOST, EOS, at_once)
        history = History.of_prompts(slots, members, batch.reading) if batch.reading else None
        positions = torch.tensor([len(one.tokens) - 1 for one in members])
        tokens: list[int] = batch.tokens(own, greedy(own), positions, history).tolist()
        return tokens

    together = chosen(list(range(len(sequences))))
    assert together == [chosen([row])[0] for row in range(len(sequences))]


@tries(50)
@given(requests(), st.integers(0, 2**31))
def test_transformers_agrees_on_penalty_bad_words_and_suppressed_tokens(sequence: Sequence, seed: int) -> None:
    row = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    how = sequence.sampling.processing
    answer = torch.tensor([sequence.tokens[sequence.prompt_len :]], dtype=torch.int64)

    def ours(processing: LogitProcessing) -> Tensor:
        return processed(row, replace(sequence, sampling=Sampling(processing=processing)))

    theirs = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([sequence.tokens]), row.clone())
    assert torch.equal(ours(LogitProcessing(repetition=1.7)), theirs)
    if how.bad_words:
        theirs = NoBadWordsLogitsProcessor(how.bad_words)(answer, row.clone())
        assert torch.equal(ours(LogitProcessing(bad_words=how.bad_words)), theirs)
    theirs = SuppressTokensLogitsProcessor([*EOS, *sequence.stop_ids])(answer, row.clone())
    assert torch.equal(ours(LogitProcessing(min_tokens=99)), theirs)


COMBINED = [
    (Sampling(0.8, 0.9, top_k=20), LogitProcessing(bias={3: 2.0, 4: -1.0}, presence=1.0, frequency=0.5)),
    (Sampling(1.3, min_p=0.05), LogitProcessing(allowed=list(range(20)), repetition=1.4, bad_words=[[2], [1, 5]])),
    (Sampling(1.0, top_k=5), LogitProcessing(min_tokens=9, presence=-2.0, bias={30: 50.0})),
]


@pytest.mark.parametrize(("sampling", "processing"), COMBINED)
def test_draws_have_the_softmax_that_processors_and_filters_leave(
    sampling: Sampling, processing: LogitProcessing
) -> None:
    """Chi-square of 100 000 draws against the definitions; its bound is crossed once in 10 000."""
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(3)) * 2
    tokens = [1, 2, 3, 4, 1, 1, 2]
    changed = torch.tensor(reference(logits.tolist(), Sequence("a", tokens, 4, 50, Sampling(processing=processing))))
    expected = filtered(changed, sampling)
    counts = torch.zeros(VOCAB)
    members = tuple(
        Sequence("a", tokens, 4, 50, replace(sampling, seed=seed, processing=processing), pages=[1, 2])
        for seed in range(5000)
    )
    batch = SamplingBatch.of(members, draw_by_torch, HOST, EOS)
    draws = batch.processed[0].drawing.draws
    assert draws is not None
    rows = logits.expand(5000, -1)
    for first in range(0, TRIES, 5000):
        assert draws.seeds.tolist() == list(range(first, first + 5000))
        slots = torch.full((3, PAGE), -7, dtype=torch.int32)
        history = History.of_prompts(slots, members, batch.reading)
        drawn = batch.tokens(rows, greedy(rows), torch.full((5000,), 6), history)
        counts += torch.bincount(drawn, minlength=VOCAB)
        draws.seeds.add_(5000)
    assert counts[expected == 0].sum() == 0
    due = expected * TRIES
    rare = due < 10
    cells = torch.cat((counts[~rare], counts[rare].sum()[None])), torch.cat((due[~rare], due[rare].sum()[None]))
    seen, wanted = (cell.double()[cells[1] > 0] for cell in cells)
    statistic, freedom = float(((seen - wanted) ** 2 / wanted).sum()), len(wanted) - 1
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3


def test_min_p_is_that_of_transformers() -> None:
    row = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(4)) * 2
    kept = MinPLogitsWarper(0.07)(torch.zeros(1, 0), row.clone())[0].isfinite()
    how = [Sampling(1.0, seed=seed, min_p=0.07) for seed in range(4000)]
    members = tuple(Sequence("a", [1], 1, 50, one) for one in how)
    rows = row.expand(4000, -1)
    drawn = SamplingBatch.of(members, draw_by_torch, HOST).tokens(rows, greedy(rows), torch.zeros(4000).long())
    assert set(drawn.tolist()) == set(kept.nonzero()[:, 0].tolist())


def test_a_row_without_a_token_left_and_one_without_finite_logits_are_told_apart() -> None:
    """The others choose as ever."""
    only_end = LogitProcessing(allowed=[30], min_tokens=5)
    kinds = [only_end, only_end, LogitProcessing(allowed=[30]), NO_PROCESSING, LogitProcessing(allowed=[4])]
    members = tuple(Sequence("a", [1, 2], 2, 50, Sampling(processing=one)) for one in kinds)
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(5))
    logits[1, 3] = logits[4, 9] = torch.nan  # the second of them where a mask lies
    for temperature in (0.0, 1.0):
        drawing = tuple(replace(one, sampling=replace(one.sampling, temperature=temperature)) for one in members)
        batch = SamplingBatch.of(drawing, draw_by_torch, HOST, EOS)
        tokens = batch.tokens(logits, greedy(logits), torch.tensor([1] * 5)).tolist()
        assert tokens[:3] == [NOTHING_LEFT, NOT_FINITE, 30]
        assert tokens[3] >= 0
        assert tokens[4] == NOT_FINITE


def test_a_batch_without_processors_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = SamplingBatch.of((Sequence("a", [1], 1, 4), Sequence("b", [1], 1, 4, Sampling(1.0))), draw_by_torch, HOST)
    assert batch.processed == batch.reading == ()
