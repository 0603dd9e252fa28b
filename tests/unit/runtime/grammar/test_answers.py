"""Answers with grammars: always in the grammar, and the same text alone, in batches, preempted, and ahead or not."""

import json
import re
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from llguidance import LLTokenizer

from graphpod_policy import Policy
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Progress, Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.grammar.matcher import AnswerGrammar, Pace
from graphpod_runtime.wire.logit_processing import LogitProcessing
from graphpod_runtime.wire.messages import FinishReason, Grammar

from .conftest import END

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{1,5}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["x", "yy", None]}, "maxItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
NUMBER = "[0-9]{1,4}(,[0-9]{1,4}){0,3}"
CHOICES = ["yes", "no", "yes and no"]


def fits_schema(text: str) -> bool:
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


KINDS: list[tuple[Grammar | None, Callable[[str], Any]]] = [
    (Grammar("json_schema", json.dumps(SCHEMA)), fits_schema),
    (None, lambda text: True),
    (Grammar("regex", NUMBER), lambda text: re.fullmatch(NUMBER, text)),
    (Grammar("choice", json.dumps(CHOICES)), CHOICES.__contains__),
]
SAMPLINGS = (
    Sampling(1.0),
    Sampling(),
    Sampling(0.8, 0.9, top_k=20),
    Sampling(1.3, processing=LogitProcessing(repetition=1.3, frequency=0.2)),
)


def requests(vocabulary: LLTokenizer, count: int, tokens: int = 60, threads: Executor | None = None) -> list[Sequence]:
    """Requests of all kinds, each with a seed of its own. With `threads` their grammars begin apart."""
    matchers = [None if grammar is None else compiled(vocabulary, grammar) for grammar, _ in KINDS]
    found = []
    for index in range(count):
        matcher, sampling = matchers[index % len(KINDS)], SAMPLINGS[index // len(KINDS) % len(SAMPLINGS)]
        prompt = [1 + (index * 7 + at * at) % 200 for at in range(3 + index % 20)]
        found.append(
            Sequence(
                str(index), prompt, len(prompt), tokens, replace(sampling, seed=index),
                grammar=None if matcher is None else AnswerGrammar(matcher.deep_copy(), threads, Pace(slow=True)),
                wants=LogprobRequest(answer=2 if index % 5 == 0 else None),
            )
        )  # fmt: skip
    return found


class Served:
    """What became of requests that were all submitted at once."""

    def __init__(self, runner: Runner, sequences: list[Sequence]) -> None:
        self.scheduler = Scheduler(runner.pages, Limits.of(runner.config, len(sequences)), runner.eos_ids)
        self.ends: dict[str, Progress] = {}
        run_ahead = RunAhead(self.scheduler, runner)
        for sequence in sequences:
            self.scheduler.submit(sequence)
        while run_ahead.busy:
            self.ends |= {one.sequence.id: one for one in run_ahead.turn() if one.finish is not None}
        self.texts = {
            one.id: (tuple(one.tokens[one.prompt_len :]), self.ends[one.id].finish, self.ends[one.id].complete)
            for one in sequences
        }


def written(vocabulary: LLTokenizer, tokens: tuple[int, ...]) -> str:
    return vocabulary.decode_bytes([token for token in tokens if token < END]).decode()


def test_answers_that_stop_fit_their_grammars(runner: Runner, vocabulary: LLTokenizer) -> None:
    stopped = 0
    for id, (tokens, finish, complete) in Served(runner, requests(vocabulary, 48)).texts.items():
        grammar, fits = KINDS[int(id) % len(KINDS)]
        if grammar is not None and finish is FinishReason.Stop:
            stopped += 1
            assert fits(written(vocabulary, tokens)), (grammar, tokens)
            assert complete is (tokens[-1] != END)
    assert stopped >= 24


def test_one_text_alone_and_in_batches_and_preempted(runner: Runner, vocabulary: LLTokenizer) -> None:
    alone: dict[str, Any] = {}
    for sequence in requests(vocabulary, 32):
        alone |= Served(runner, [sequence]).texts
    assert Served(runner, requests(vocabulary, 32)).texts == alone
    runner.pages = PageAllocator(30)
    preempted = Served(runner, requests(vocabulary, 32))
    assert preempted.texts == alone
    assert preempted.scheduler.preemptions > 3


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    return {}


@pytest.fixture
def usual(
    known: dict[str, Any], started: Callable[..., Runner], model_folder: Path, vocabulary: LLTokenizer
) -> dict[str, Any]:
    """The texts of 32 requests without any mode of debugging; served once."""
    if not known:
        known |= Served(started(folder=model_folder), requests(vocabulary, 32)).texts
    return known


@pytest.mark.parametrize("modes", ["lockstep", "seats", "seats,poison"])
def test_running_ahead_changes_no_text(
    started: Callable[..., Runner],
    model_folder: Path,
    vocabulary: LLTokenizer,
    usual: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    modes: str,
) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", modes)
    assert Served(started(folder=model_folder), requests(vocabulary, 32)).texts == usual


def test_graphs_change_no_text(
    started: Callable[..., Runner], model_folder: Path, vocabulary: LLTokenizer, usual: dict[str, Any]
) -> None:
    eager = started(Policy.Disabled, Policy.Disabled, folder=model_folder)
    assert usual == Served(eager, requests(vocabulary, 32)).texts


def test_every_token_is_the_likeliest_that_a_fresh_matcher_allows(runner: Runner, vocabulary: LLTokenizer) -> None:
    """Against a model that knows nothing of batches and passes: all tokens again, one at a time."""
    [sequence] = requests(vocabulary, 1)
    sequence.sampling = Sampling()
    Served(runner, [sequence])
    fresh = compiled(vocabulary, KINDS[0][0] or Grammar("json_object"))
    model, answer = runner.engine.model, sequence.tokens[sequence.prompt_len :]
    reference = LlamaReference(runner)
    for at, token in enumerate(answer):
        mask = fresh.compute_bitmask()
        logits = reference.logits(sequence.tokens[: sequence.prompt_len + at])
        allowed = [id for id in range(model.shape.vocab) if id // 8 < len(mask) and mask[id // 8] >> id % 8 & 1]
        assert token == max(allowed, key=lambda id: logits[id].item())
        fresh.consume_token(token)


class LlamaReference:
    """transformers' model of the same folder."""

    def __init__(self, runner: Runner) -> None:
        from transformers import LlamaForCausalLM

        self._model = LlamaForCausalLM.from_pretrained(runner.config.model.path, dtype=torch.float32).eval()

    def logits(self, tokens: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return self._model(torch.tensor([tokens])).logits[0, -1]


class DeadEnd(AnswerGrammar):
    """One that gives up at its third token, as llguidance does when a limit is reached."""

    spent = 0

    def advance(self, token: int) -> None:
        super().advance(token)
        self.spent += 1
        if self.spent == 3:
            self.matcher.consume_token(END - 1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_that_gives_up_ends_its_request_alone(
    runner: Runner, vocabulary: LLTokenizer, temperature: float
) -> None:
    sequences = requests(vocabulary, 8)
    matcher = compiled(vocabulary, Grammar("regex", "[a-z]{20}"))
    sequences[4].grammar, sequences[4].sampling = DeadEnd(matcher.deep_copy()), Sampling(temperature, seed=5)
    served = Served(runner, sequences)
    tokens, finish, _ = served.texts["4"]
    assert (len(tokens), finish) == (3, FinishReason.Error)
    assert "the answer's grammar gave up after" in (served.ends["4"].message or "")
    assert served.scheduler.nonfinite == 0
    expected = Served(runner, [one for one in requests(vocabulary, 8) if one.id != "4"]).texts
    assert {id: text for id, text in served.texts.items() if id != "4"} == expected


def test_a_request_to_which_nothing_is_left_ends_alone(runner: Runner, vocabulary: LLTokenizer) -> None:
    sequences = requests(vocabulary, 8)
    sequences[3].sampling = Sampling(processing=LogitProcessing(allowed=[5]))
    others = {one.id for one in sequences} - {"3"}
    served = Served(runner, sequences)
    assert served.texts["3"] == ((), FinishReason.Error, False)
    assert "grammar" in (served.ends["3"].message or "")
    expected = Served(runner, [one for one in requests(vocabulary, 8) if one.id != "3"]).texts
    assert {id: served.texts[id] for id in others} == expected
    assert served.scheduler.nonfinite == 0


def test_ignore_eos_goes_on_to_the_end_of_the_grammar(runner: Runner, vocabulary: LLTokenizer) -> None:
    matcher = compiled(vocabulary, Grammar("regex", "a{0,9}"))
    sequences = [
        Sequence(str(seed), [5, 6], 2, 40, Sampling(1.0, seed=seed), ignore_eos=seed % 2 == 0,
                 grammar=AnswerGrammar(matcher.deep_copy()))
        for seed in range(12)
    ]  # fmt: skip
    for id, (tokens, finish, complete) in Served(runner, sequences).texts.items():
        assert finish is FinishReason.Stop
        if int(id) % 2 == 0:
            assert (len(tokens), complete) == (9, True)


def test_an_abort_in_flight_leaves_no_page(runner: Runner, vocabulary: LLTokenizer) -> None:
    free = runner.pages.free_pages
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 8), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    for sequence in requests(vocabulary, 8):
        scheduler.submit(sequence)
    for turn in range(6):
        run_ahead.turn()
        scheduler.abort(str(turn))
    while run_ahead.busy:
        run_ahead.turn()
    assert runner.pages.free_pages == free


def test_a_batch_without_grammars_writes_no_mask(runner: Runner) -> None:
    Served(runner, [Sequence("a", [5, 6], 2, 5)])
    assert runner.counters.value("graphpod_forward_passes_total") > 0
    samples = {sample.name: sample for sample in runner.counters.snapshot()}
    assert sum(samples["graphpod_grammar_mask_duration_seconds"].buckets) == 0
