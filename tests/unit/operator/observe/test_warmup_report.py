"""Whatever a pod answers, it is a reading or it is none, and the status made of it is one that the API server takes."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given

from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe.warmup_poller import Warmups
from graphpod_operator.observe.warmup_report import Answer, NoReading, Reading
from graphpod_operator.telemetry.label_values import Missing
from tests.scribbles import Path, paths, put, scribbled
from tests.unit.operator.objects import pod, report
from tests.unit.operator.told import HASH, SERVING, UID, seen, the, words

ONE = pod(config_hash=HASH, ready=True)
DECISION = {"rule": "r", "phase": "decode", "stage": "Engine", "outcome": "Degraded", "because": "b", "hint": "h"}
FULL = report(config_hash=HASH, decisions=[DECISION], failure={"reason": "x", "message": "y"})
LARGE = 10**400
NUMBERS: tuple[Any, ...] = (-1, LARGE, -LARGE, 10**12, 0.5, -0.5, float("nan"), float("inf"), float("-inf"), 1e300)
OTHERS: tuple[Any, ...] = (None, True, "", "Auto", "x" * 60_000, "\x00", [], {}, [[]], {"a": 1})


class Says:
    """An admin port that answers this text."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def warmup(self, pod: Pod) -> bytes:
        return self.text.encode()


def answered(body: Any) -> Answer:
    async def ask() -> Answer:
        return (await Warmups(Says(json.dumps(body))).read([Pod.of(ONE)]))[UID]

    return asyncio.run(ask())


PATHS = sorted(paths(FULL), key=str)


def is_taken(answer: Answer) -> None:
    """The status made of an answer holds nothing that JSON, or the schema, does not have."""
    made = the(seen([ONE], {UID: answer}, SERVING))
    text = json.dumps(made.model_dump(mode="json", by_alias=True, exclude_none=True), allow_nan=False)
    assert len(text) < 64 * 1024
    if isinstance(answer, NoReading):
        assert words(made)["Ready"][0] != "True"


@pytest.mark.parametrize("at", PATHS, ids=lambda at: ".".join(map(str, at)))
@pytest.mark.parametrize("value", [*NUMBERS, *OTHERS], ids=lambda value: repr(value)[:12])
def test_any_field_may_be_anything(at: Path, value: Any) -> None:
    is_taken(answered(put(FULL, at, value)))


@given(scribbled(FULL))
def test_any_field_may_be_anything_drawn(body: Any) -> None:
    is_taken(answered(body))


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (("graph", "decode", "effective"), "Auto", "graph.decode.effective is Auto, which decode cannot run"),
        (("graph", "decode", "effective"), "Piecewise", "graph.decode.effective is Piecewise, which decode cannot run"),
        (("graph", "decode", "sizes", "captured"), -1, "graph.decode.sizes.captured: Input should be greater"),
        (
            ("graph", "decode", "sizes", "captured"),
            True,
            "graph.decode.sizes.captured: Input should be a valid",
        ),
        (("graph", "decode", "sizes", "planned"), LARGE, "graph.decode.sizes.planned: "),
        (("graph", "decode", "captureSeconds"), float("nan"), "graph.decode.captureSeconds: Input should be a finite"),
        (("graph", "decode", "captureSeconds"), float("inf"), "graph.decode.captureSeconds: Input should be a finite"),
        (("graph", "decode", "captureSeconds"), -1, "graph.decode.captureSeconds: Input should be greater"),
        (("graph", "decode", "captureSeconds"), 1e300, "graph.decode.captureSeconds: Input should be less"),
        (("graph",), {}, "graph must have both phases once the state is Ready"),
        (("decisions",), [DECISION] * 257, "decisions: Tuple should have at most 256 items"),
        (("terminal",), "yes", "terminal: Input should be a valid boolean"),
        (("configHash",), "x" * 254, "configHash: String should have at most 253 characters"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_no_engine_can_say_is_a_mismatch_that_names_the_field(at: Path, value: Any, words: str) -> None:
    answer = answered(put(FULL, at, value))
    assert isinstance(answer, NoReading)
    assert answer.cause is Missing.Mismatch
    assert words in answer.message


def test_the_answer_itself_is_a_reading() -> None:
    assert isinstance(answered(FULL), Reading)
