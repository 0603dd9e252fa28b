"""Every line of the operator's log names its object, its level and a message that never varies."""

import ast
import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import graphpod_operator
from graphpod_operator.cache.key import Key
from graphpod_operator.telemetry import logs
from graphpod_operator.telemetry.logs import FIELDS, TOLD_BY_WATCH, Format, about, configure

LEVELS = ("debug", "info", "warning", "error", "exception")
SPOKEN = {f"{logger}.{level}" for logger in ("log", "logging.getLogger(__name__)") for level in LEVELS}
KEY = Key("team-a", "demo")
SOURCES = sorted(Path(graphpod_operator.__file__).parent.rglob("*.py"))
log = logging.getLogger("graphpod_operator.reconcile")


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What came on standard error; the test run's own logging is as before afterwards."""
    root, kopf = logging.getLogger(), [logging.getLogger(name) for name in ("kopf", *TOLD_BY_WATCH)]
    before = root.handlers[:], root.level, [one.level for one in kopf]
    yield lambda: capsys.readouterr().err
    root.handlers[:], root.level = before[:2]
    for one, level in zip(kopf, before[2], strict=True):
        one.setLevel(level)


def test_a_line_of_json_has_its_object_its_level_and_its_fields(written: Callable[[], str]) -> None:
    configure("info", Format.Json)
    with about(KEY):
        log.info("child created", extra={"child": "Deployment demo"})
    log.warning("Lease renewed late", extra={"object": "ns/lease", "seconds": 12})
    told, late = map(json.loads, written().splitlines())
    assert told.pop("time").endswith("+00:00")
    assert told == {
        "level": "info",
        "logger": "graphpod_operator.reconcile",
        "object": "team-a/demo",
        "message": "child created",
        "child": "Deployment demo",
    }
    assert (late["level"], late["object"], late["seconds"]) == ("warning", "ns/lease", 12)


def test_a_line_of_text_reads_as_a_sentence_with_its_fields(written: Callable[[], str]) -> None:
    configure("info", Format.Text)
    with about(KEY):
        log.error("reconcile failed; trying again", extra={"error": 'a "quota"', "seconds": 1.5})
    log.info("leading")
    failed, leading = (line.partition(" ")[2] for line in written().splitlines())
    assert failed == r'error   reconcile team-a/demo: reconcile failed; trying again error="a \"quota\"" seconds=1.5'
    assert leading == "info    reconcile: leading"


@pytest.mark.parametrize("format", Format)
def test_a_fault_of_the_program_has_its_traceback(written: Callable[[], str], format: Format) -> None:
    configure("info", format)
    try:
        raise KeyError("spec")
    except KeyError:
        log.exception("reconcile failed; trying again")
    assert "Traceback (most recent call last)" in written()


def test_tasks_that_a_reconcile_began_speak_of_its_object_and_others_of_theirs(written: Callable[[], str]) -> None:
    configure("info", Format.Json)

    async def work(name: str) -> None:
        with about(Key("team-a", name)):
            await asyncio.sleep(0)
            await asyncio.create_task(say())

    async def say() -> None:
        log.info("read")

    async def both() -> None:
        await asyncio.gather(work("one"), work("two"))
        await say()

    asyncio.run(both())
    told = [json.loads(line).get("object") for line in written().splitlines()]
    assert told == ["team-a/one", "team-a/two", None]


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a logger in the operator's code."""
    for source in SOURCES:
        found = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call))
        yield from ((f"{source.name}:{node.lineno}", node) for node in found if ast.unparse(node.func) in SPOKEN)


def test_messages_never_vary_and_what_varies_is_a_known_field() -> None:
    found = list(calls())
    assert len(found) > 10
    for where, call in found:
        message, *values = call.args
        assert isinstance(message, ast.Constant), f"{where}: the message is made at run time"
        assert all(isinstance(value, ast.IfExp) for value in values), f"{where}: {ast.unparse(call)}: give it as extra"
        extra = next((word.value for word in call.keywords if word.arg == "extra"), None)
        if isinstance(extra, ast.Dict):
            names = {key.value for key in extra.keys if isinstance(key, ast.Constant)}
            assert names <= {*FIELDS, "object"}, f"{where}: {names - {*FIELDS}} would not be written"


def test_a_field_never_takes_the_place_of_what_python_says_of_a_line() -> None:
    own = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
    assert not own & {*logs.FIELDS, "object"}
