"""Limits of reasoning: what closes it comes after so many tokens, alone, in batches, preempted, and ahead or not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLTokenizer

from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.front.openai.turn.grammar import after_reasoning
from graphpod_runtime.front.text.turn.formats import ReasoningFormat
from graphpod_runtime.front.text.turn.turn_parser import TurnForm
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.grammar.matcher import AnswerGrammar
from graphpod_runtime.grammar.reasoning_limit import ReasoningCount
from graphpod_runtime.wire.logit_processing import LogitProcessing
from graphpod_runtime.wire.messages import FinishReason, Grammar, ReasoningLimit

from .conftest import END
from .test_answers import SAMPLINGS, SCHEMA, Served, fits_schema

OPENS, CLOSES = b"<t>", b"</t>"
THINKING = ReasoningLimit(7, "<t>", "</t>", thinks=True, ends=["<call>"])
GRAMMAR = after_reasoning(
    Grammar("json_schema", json.dumps(SCHEMA)), TurnForm(ReasoningFormat("T", "<t>", "</t>"), thinks=True)
)


def requests(vocabulary: LLTokenizer, count: int) -> list[Sequence]:
    """Each third has no limit, each third a limit, each third a limit and a grammar of what follows."""
    matcher, found = compiled(vocabulary, GRAMMAR), []
    for index in range(count):
        sampling = SAMPLINGS[index // 3 % len(SAMPLINGS)]
        prompt = [1 + (index * 7 + at * at) % 200 for at in range(3 + index % 20)]
        answer = AnswerGrammar(
            None if index % 3 == 1 else matcher.deep_copy(), reasoning=ReasoningCount(THINKING, vocabulary)
        )
        found.append(
            Sequence(
                str(index), prompt, len(prompt), 60, Sampling(sampling.temperature, sampling.top_p, index),
                grammar=answer if index % 3 else None, wants=LogprobRequest(answer=1 if index % 4 == 0 else None),
            )
        )  # fmt: skip
    return found


def test_reasoning_ends_at_its_limit_and_what_follows_fits_its_grammar(runner: Runner, vocabulary: LLTokenizer) -> None:
    ended = stopped = 0
    for id, (tokens, finish, _) in Served(runner, requests(vocabulary, 48)).texts.items():
        # A model at random: it may end its text, and hardly ever closes its reasoning by itself.
        if int(id) % 3 and len(tokens) >= THINKING.tokens + len(CLOSES):
            ended += 1
            assert vocabulary.decode_bytes([*tokens[THINKING.tokens : THINKING.tokens + len(CLOSES)]]) == CLOSES
        if int(id) % 3 == 2 and finish is FinishReason.Stop:
            stopped += 1
            text = vocabulary.decode_bytes([token for token in tokens if token < END]).decode(errors="replace")
            assert fits_schema(text.partition(CLOSES.decode())[2].strip())
    assert ended >= 24
    assert stopped >= 1


def test_one_text_alone_and_in_batches_and_preempted(runner: Runner, vocabulary: LLTokenizer) -> None:
    alone: dict[str, Any] = {}
    for sequence in requests(vocabulary, 24):
        alone |= Served(runner, [sequence]).texts
    assert Served(runner, requests(vocabulary, 24)).texts == alone
    runner.pages = PageAllocator(30)
    preempted = Served(runner, requests(vocabulary, 24))
    assert preempted.texts == alone
    assert preempted.scheduler.preemptions > 3


def test_running_ahead_changes_no_text(
    started: Callable[..., Runner],
    model_folder: Path,
    vocabulary: LLTokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead = Served(started(folder=model_folder), requests(vocabulary, 24)).texts
    monkeypatch.setenv("GRAPHPOD_DEBUG", "lockstep")
    assert Served(started(folder=model_folder), requests(vocabulary, 24)).texts == ahead


def test_a_request_that_masks_what_is_to_end_its_reasoning_ends_alone(runner: Runner, vocabulary: LLTokenizer) -> None:
    sequences = requests(vocabulary, 6)
    sequences[1].sampling = Sampling(processing=LogitProcessing(allowed=[5]))
    served = Served(runner, sequences)
    assert served.texts["1"] == ((5,) * THINKING.tokens, FinishReason.Error, False)
    assert "thinking_token_budget" in (served.ends["1"].message or "")
    expected = Served(runner, [one for one in requests(vocabulary, 6) if one.id != "1"]).texts
    assert {id: text for id, text in served.texts.items() if id != "1"} == expected


def counted(vocabulary: LLTokenizer, limit: ReasoningLimit, text: bytes) -> list[int | None]:
    """The byte that is forced before each token of a text, and after the last."""
    count = ReasoningCount(limit, vocabulary)
    forced = [count.forced]
    for token in vocabulary.tokenize_bytes(text):
        count.advance(token)
        forced.append(count.forced)
    return [None if token is None else vocabulary.decode_bytes([token])[0] for token in forced]


@pytest.mark.parametrize(
    ("limit", "text", "forced"),
    [
        (ReasoningLimit(0, "<t>", "</t>", thinks=True), b"</t>x", [*CLOSES, None, None]),
        (ReasoningLimit(2, "<t>", "</t>", thinks=True), b"ab</t>x", [None, None, *CLOSES, None, None]),
        (ReasoningLimit(1, "<t>", "</t>"), b" <t>a</t>", [None, None, None, None, None, *CLOSES, None]),
        (ReasoningLimit(0, "<t>", "</t>"), b"<t></t>", [None, None, None, *CLOSES, None]),
        (ReasoningLimit(1, "<t>", "</t>"), b"a<t>bc", [None] * 7),
        (ReasoningLimit(1, "<t>", "</t>"), b"<tabc", [None] * 6),
        (ReasoningLimit(6, "<t>", "</t>", thinks=True), b"a</t>bcde", [None] * 10),
        (ReasoningLimit(9, "<t>", "</t>", thinks=True, ends=["<call>"]), b"a<call>bcdef", [None] * 13),
        (ReasoningLimit(2, "<t>", "</t>", thinks=True), b"</</t>", [None, None, *CLOSES, None]),
    ],
    ids=["none", "two", "opened", "opened-none", "no-reasoning", "half-a-tag", "closed", "called", "half-closed"],
)
def test_what_is_forced(vocabulary: LLTokenizer, limit: ReasoningLimit, text: bytes, forced: list[int | None]) -> None:
    assert counted(vocabulary, limit, text) == forced
