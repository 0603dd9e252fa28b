"""What a client makes of a stream, event by event."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.bench.serve.drive.client import Answer
from graphpod_runtime.bench.serve.drive.sse import DONE, Events
from graphpod_runtime.bench.serve.figures.record import Outcome

STREAM = b'data: {"a": 1}\n\n: a comment\n\ndata:{"b": 2}\r\n\r\nevent: x\ndata: [DONE]\n\n'


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_are_the_same_however_the_bytes_arrive(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    events = Events()
    found = [event for start, end in itertools.pairwise(places) for event in events.feed(STREAM[start:end])]
    assert found == [b'{"a": 1}', b'{"b": 2}', DONE]


def answer_to(*events: object) -> Answer:
    """An answer of these events, one every second, closed."""
    answer = Answer()
    for at, event in enumerate(events, start=1):
        answer.take(event if isinstance(event, bytes) else json.dumps(event).encode(), float(at))
    answer.close()
    return answer


def text(piece: str, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "text": piece, "finish_reason": finish}]}


def chat(finish: str | None = None, **delta: str | None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_pieces_of_a_completion_have_a_time_each_and_usage_counts_tokens() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    answer = answer_to(text("a"), text(""), text("b"), text("", "length"), {"choices": [], "usage": usage}, DONE)
    assert (answer.outcome, answer.text) == (Outcome.Completed, "ab")
    assert answer.stamps == [1, 2, 3]
    assert answer.last == 4
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.cached_tokens) == (5, 4, 3)


def test_the_event_that_opens_a_chat_is_no_token_and_thoughts_are() -> None:
    opening = chat(role="assistant", content="")
    answer = answer_to(opening, chat(reasoning_content="hm"), chat(content="a"), chat("stop"), DONE)
    assert (answer.stamps, answer.last) == ([2, 3], 4)
    assert answer_to(opening, chat(reasoning="hm"), chat("stop"), DONE).stamps == [2]
    assert answer_to(chat(role="assistant", content="at once"), chat("stop"), DONE).stamps == [1]


def test_an_answer_of_one_token_without_text_came_when_it_ended() -> None:
    answer = answer_to(text("", "length"), DONE)
    assert (answer.outcome, answer.stamps) == (Outcome.Completed, [1])


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ((text("a"),), "stream cut"),
        ((), "stream cut"),
        ((DONE,), "empty answer"),
        ((text("a"), text("", "abort")), "finish reason abort"),
        ((text("a"), {"error": {"message": "died"}}), "error event"),
    ],
)
def test_a_stream_that_did_not_end_as_it_should_is_a_failure(events: tuple[object, ...], kind: str) -> None:
    answer = answer_to(*events)
    assert (answer.outcome, answer.error) == (Outcome.Failed, kind)
    assert answer.message
