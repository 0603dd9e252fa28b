"""What counts as equal, as a near-tie, and as wrong."""

import math
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from llguidance import LLMatcher

from graphpod_policy import Phase
from graphpod_policy.config import FeatureConfig
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.forward.sampling.logprobs import of_logits
from graphpod_runtime.engine.forward.sampling.sampler import greedy, sampling_tensors_of
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.kernels.sampling.draw import draw_by_torch
from graphpod_runtime.wire.messages import Grammar, Logprob, Pooling
from truth.models import VOCAB
from truth.schedule.choice import scores
from truth.schedule.grammars import allowed, vocabulary
from truth.schedule.recorded_schedule import Difference, RecordedPass, RecordedSchedule, ScheduleDiffers, compare

NEAR = 1e-3
NOTHING = LogprobRequest()
GREEDY = Sampling()


class Saying:
    """A runner that says what it was made with."""

    config: Any = None

    def __init__(self, *yielded: Yielded) -> None:
        self.yielded = list(yielded)
        self.given: list[list[int] | None] = []

    def launch(self, batch: Any, given: list[int] | None = None) -> None:
        self.given.append(given)

    def choose(self, flight: None) -> None:
        """Nothing: `launch` has."""

    def land(self, flight: None) -> Yielded:
        return self.yielded.pop(0)


def logprob(token: int, first: float, second: float) -> Logprob:
    return Logprob(token, first, ((token, first), (token + 1, second)))


def recorded(
    *yielded: Yielded,
    wants: LogprobRequest = NOTHING,
    given: RecordedSchedule | None = None,
    sampling: Sampling = GREEDY,
) -> RecordedSchedule:
    """A run of one-chunk passes."""
    found = RecordedSchedule(Saying(*yielded), wants, given=given)  # type: ignore[arg-type]
    for _ in range(len(yielded)):
        found.forward(PrefillBatch((Chunk(Sequence("a", [1, 2], 2, 1, sampling), 0, 2),)))
    return found


def test_a_token_that_differs_is_a_near_tie_only_where_eager_was_not_sure() -> None:
    sure, unsure = logprob(5, -0.1, -3.0), logprob(5, -0.7, -0.7005)
    record = recorded(Yielded([5], (sure,)), Yielded([5], (unsure,)))
    assert compare(record, recorded(Yielded([5]), Yielded([5]), given=record), NEAR) == Difference(tokens=2)
    assert compare(record, recorded(Yielded([5]), Yielded([6]), given=record), NEAR) == Difference(
        tokens=2, near_ties=1
    )
    assert compare(record, recorded(Yielded([6]), Yielded([5]), given=record), NEAR) == Difference(tokens=2, wrong=1)
    # A third token is wrong where two are near each other.
    assert compare(record, recorded(Yielded([5]), Yielded([7]), given=record), NEAR) == Difference(tokens=2, wrong=1)


def test_of_two_equally_likely_tokens_either_may_be_the_one_that_was_chosen() -> None:
    """The greedy choice takes the first of equals, a list of the likeliest any."""
    record = recorded(Yielded([6], (Logprob(6, -0.7, ((5, -0.7), (6, -0.7))),)))
    assert compare(record, recorded(Yielded([5]), given=record), NEAR) == Difference(tokens=1, near_ties=1)


def test_of_a_row_that_draws_the_noise_decides_which_tokens_are_near() -> None:
    sampling = Sampling(1.0, seed=3)
    alike = Logprob(5, -0.7, ((5, -0.7), (6, -0.7)))
    scored = scores(alike, sampling, 2)
    best, other = sorted(scored, key=lambda token: -scored[token])
    for how, expected in ((GREEDY, Difference(1, near_ties=1)), (sampling, Difference(1, wrong=1))):
        record = recorded(Yielded([best], (alike,)), sampling=how)
        assert compare(record, recorded(Yielded([other]), given=record, sampling=how), NEAR) == expected


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.5])
def test_the_best_by_score_is_what_the_engine_draws(temperature: float) -> None:
    logits = torch.randn(40, VOCAB, generator=torch.Generator().manual_seed(1)) * 3
    samplings = [Sampling(temperature, seed=seed) for seed in range(40)]
    positions = torch.arange(40)
    drawn = (
        draw_by_torch(logits, greedy(logits), positions - 1, sampling_tensors_of(samplings, HOST))
        if temperature
        else greedy(logits)
    )
    named = of_logits(logits, drawn, VOCAB).to_list()
    for logprob, sampling, position in zip(named, samplings, positions.tolist(), strict=True):
        scored = scores(logprob, sampling, position)
        assert max(scored, key=scored.__getitem__) == logprob.token


def test_the_first_wrong_token_is_told_with_what_was_allowed() -> None:
    record = recorded(Yielded([5], (logprob(5, -0.5, -3.0),)), Yielded([5], (logprob(5, -0.5, -3.0),)))
    found = compare(record, recorded(Yielded([6]), Yielded([9]), given=record), NEAR)
    assert found.first == "prefill of request a behind 2 tokens: 6 is 2.5 behind eager's choice, 5, 0.001 allowed"
    found = compare(record, recorded(Yielded([5]), Yielded([9]), given=record), NEAR)
    assert found.first == (
        "prefill of request a behind 2 tokens: 9 is more than 2.5 behind eager's choice, 5, and none of its 2, "
        "0.001 allowed"
    )


def test_log_probabilities_are_compared_where_they_were_asked_for() -> None:
    record = recorded(Yielded([5], (logprob(5, -0.1, -3.0),), ((Logprob(2, -1.0),),)))
    other = Yielded([5], (logprob(5, -0.2, -3.0),), ((Logprob(2, -1.5),),))
    for wants, expected in (
        (LogprobRequest(), (0, 0.0)),
        (LogprobRequest(answer=1), (1, 0.1)),
        (LogprobRequest(answer=1, prompt=1), (2, 0.5)),
    ):
        found = compare(record, recorded(other, wants=wants, given=record), NEAR)
        assert (found.scored, found.worst) == (expected[0], pytest.approx(expected[1]))


def test_not_a_number_is_far_from_everything() -> None:
    record = recorded(Yielded([5], (logprob(5, -0.1, -3.0),)))
    got = recorded(Yielded([5], (Logprob(5, math.nan),)), wants=LogprobRequest(answer=0), given=record)
    assert compare(record, got, NEAR).worst == math.inf


def test_what_was_asked_and_not_told_is_no_agreement() -> None:
    record = recorded(Yielded([5], (logprob(5, -0.1, -3.0),), ((Logprob(2, -1.0),),)))
    with pytest.raises(ValueError, match="shorter"):
        compare(record, recorded(Yielded([5]), wants=LogprobRequest(prompt=0), given=record), NEAR)


def test_another_schedule_is_not_compared() -> None:
    record = recorded(Yielded([5]), Yielded([6]))
    with pytest.raises(ScheduleDiffers, match="1 passes, the record has 2"):
        compare(record, recorded(Yielded([5]), given=record), NEAR)
    record.passes[0] = RecordedPass(Phase.Decode, record.passes[0].rows, record.passes[0].yielded)
    with pytest.raises(ScheduleDiffers, match="pass 0 is prefill"):
        recorded(Yielded([5]), given=record)


def test_the_second_run_goes_on_with_the_records_token() -> None:
    record = recorded(Yielded([5], (logprob(5, -0.1, -3.0),)))
    runner = Saying(Yielded([6]))
    second = RecordedSchedule(runner, given=record)  # type: ignore[arg-type]
    assert second.forward(PrefillBatch((Chunk(Sequence("a", [1, 2], 2, 1), 0, 2),))).tokens == [5]
    assert second.passes[0].yielded.tokens == [6]
    assert runner.given == [[5]], "later passes go on from it, whenever this one lands"


def test_a_runner_without_the_stages_of_a_schedule_computes_each_pass_before_the_next_is_planned() -> None:
    batch = PrefillBatch((Chunk(Sequence("a", [1, 2], 2, 1), 0, 2),))
    for stages, left in ((1, 2), (3, 2), (4, 0)):
        runner = Saying(Yielded([5]), Yielded([6]))
        runner.config = SimpleNamespace(features=FeatureConfig(pipeline=3))
        found = RecordedSchedule(runner, NOTHING, stages=stages)  # type: ignore[arg-type]
        flights = [found.launch(batch) for _ in range(2)]
        assert len(runner.yielded) == left
        assert [found.land(flight).tokens for flight in flights] == [[5], [6]]


def of_request(yielded: Yielded, given: RecordedSchedule | None = None, **asked: Any) -> RecordedSchedule:
    """A run of one request's prompt."""
    found = RecordedSchedule(Saying(yielded), NOTHING, given=given, **asked)  # type: ignore[arg-type]
    found.forward(PrefillBatch((Chunk(found.sequence("a", [1, 2], 1), 0, 2),)))
    return found


def test_a_token_that_the_grammar_does_not_allow_is_wrong_however_near_it_is() -> None:
    (digit, other, letter) = (16, 17, 70)
    asked = {"matchers": (_matcher("[0-9]+"),)}
    unmasked = Logprob(digit, -0.7, ((digit, -0.7), (other, -0.7002), (letter, -0.7001)))
    record = of_request(Yielded([digit], (unmasked,)), **asked)
    assert record.scores("a", unmasked, 2).keys() == {digit, other}
    found = [compare(record, of_request(Yielded([token]), record, **asked), NEAR) for token in (digit, other, letter)]
    assert [(one.near_ties, one.wrong) for one in found] == [(0, 0), (1, 0), (0, 1)]


def _matcher(regex: str) -> LLMatcher:
    return compiled(vocabulary(), Grammar("regex", regex))


def test_what_a_grammar_allows_follows_the_answer_and_ends_none() -> None:
    matcher = _matcher("0?1")
    assert [allowed(matcher, answer) for answer in ([], [15])] == [{15, 16}, {16}]
    with pytest.raises(ValueError, match="no beginning of an answer"):
        allowed(matcher, [16, 16])


@pytest.mark.parametrize(("scale", "added", "apart"), [(3.0, 0.0, 0.0), (1.0, 0.5, 0.09), (math.nan, 0.0, math.inf)])
def test_embeddings_are_compared_by_their_direction(scale: float, added: float, apart: float) -> None:
    state = numpy.arange(1, 6, dtype=numpy.float32)

    def run(total: Any, given: RecordedSchedule | None = None) -> RecordedSchedule:
        found = of_request(Yielded([5], (logprob(5, -0.1, -3.0),)), given, poolings=(Pooling.Last,))
        pooled = found.sequences["a"].pooled
        assert pooled is not None
        pooled.add(1, total, 2)
        return found

    record = run(state)
    other = scale * state
    other[0] += added
    difference = compare(record, run(other, record), NEAR)
    assert (difference.scored, difference.worst) == (1, pytest.approx(apart, abs=0.03))
