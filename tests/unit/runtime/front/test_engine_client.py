"""The front's side of the wire, without a front."""

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from graphpod_policy import EngineConfig, ExitCode
from graphpod_runtime.engine.ranks.others import COMMAND
from graphpod_runtime.front.app import in_capture, run
from graphpod_runtime.front.options import Checked, ServeOptions
from graphpod_runtime.front.requests.engine_client import ENGINE_COMMAND, EngineClient
from graphpod_runtime.front.requests.engine_stream import Arrived
from graphpod_runtime.front.requests.termination import Ending
from graphpod_runtime.wire.messages import Arriving, Command, Finished, FinishReason, Submit
from graphpod_runtime.wire.report import State
from tests.eventually import Eventually

from .conftest import engine_json, first_status

BABBLE = """
import socket, sys
from graphpod_runtime.wire.line import Line
own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
own.connect(f"{sys.argv[4]}/wire")
Line(own).send(b"no frame of ours")
sys.stdin.read()
"""
LAST_WORDS = """
import sys
from pathlib import Path
from graphpod_runtime.wire.messages import Fatal, Warmup
from graphpod_runtime.wire.socket import WIRE, EngineEnd
end = EngineEnd(Path(sys.argv[4]), WIRE)
for _ in range(1000):
    end.send([Warmup({})])
end.send([Fatal("CaptureFailed", "the last words", 12)])
end.close()
"""


def test_a_request_that_comes_after_the_end_ends_at_once() -> None:
    async def late() -> dict[int, Arrived]:
        client = EngineClient(lambda event: None)
        client.abort_all("the server is shutting down")
        with client.submit([partial(Submit, prompt=[1], max_tokens=1)]) as stream:
            assert client.open == 0
            arrived = await asyncio.wait_for(stream.next(), 10)
        client.close()
        return arrived

    ended = Finished("r0", FinishReason.Error, "the server is shutting down")
    assert asyncio.run(late()) == {0: Arrived(finished=ended)}


class Sending(EngineClient):
    """Keeps what it would send."""

    def __init__(self, awake: float) -> None:
        super().__init__(lambda event: None, awake=awake)
        self.sent: list[Command] = []

    def _send(self, commands: list[Command]) -> None:
        self.sent += commands


@pytest.mark.parametrize(
    ("awake", "quiet", "sent"),
    [(60.0, 61.0, [Arriving()]), (60.0, 0.0, []), (0.0, 9.0, [])],
    ids=["asleep", "awake", "sleeps at once"],
)
def test_an_engine_that_sleeps_hears_of_a_request_before_its_body_is_read(
    awake: float, quiet: float, sent: list[Command]
) -> None:
    async def received() -> list[Command]:
        client = Sending(awake)
        with client.submit([partial(Submit, prompt=[1], max_tokens=1)]) as stream:
            client.arriving()
            assert [type(command) for command in client.sent] == [Submit], "an engine that works does not sleep"
            client._arrived(Finished("r0", FinishReason.Stop))
            await stream.next()
        client.sent.clear()
        client._quiet_since -= quiet
        client.arriving()
        client.arriving()
        client.close()
        return client.sent

    assert asyncio.run(received()) == sent, "one is enough"


def test_a_request_that_cannot_be_sent_leaves_none_of_its_group_open() -> None:
    async def submit() -> int:
        client = EngineClient(lambda event: None)
        requests = [partial(Submit, prompt=[1], max_tokens=tokens) for tokens in (1, 2**70)]
        with pytest.raises(OverflowError), client.submit(requests):
            pass
        left = client.open
        client.close()
        return left

    assert asyncio.run(submit()) == 0


async def ending_of(client: EngineClient, tmp_path: Path) -> tuple[Ending, dict[int, Arrived]]:
    """How its run ends, and a request that is open until then."""
    try:
        run = asyncio.create_task(client.run(tmp_path))
        with client.submit([partial(Submit, prompt=[1], max_tokens=1)]) as stream:
            ending = await asyncio.wait_for(run, 60)
            return ending, await asyncio.wait_for(stream.next(), 10)
    finally:
        client.close()


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ('Line(own).send(b"no frame of ours")', "ValidationError: "),
        ('own.sendall(b"HTTP/1.1 400 Bad Request")', "ValueError: a frame of 1347703884 bytes"),
    ],
)
def test_what_is_no_message_ends_the_run_and_its_requests_with_the_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: str, words: str, stays: bool
) -> None:
    """Also if it is the last that an engine sends, which is read when the process has gone."""
    code = BABBLE.replace('Line(own).send(b"no frame of ours")', sent)
    code = code if stays else code.replace("sys.stdin.read()", "")

    async def run() -> tuple[Ending, dict[int, Arrived]]:
        return await ending_of(EngineClient(lambda event: None, (sys.executable, "-c", code)), tmp_path)

    ending, arrived = asyncio.run(run())
    assert (ending.code, ending.crashed) == (ExitCode.EngineDied, False)
    assert re.match(rf"a message of the engine process \d+ cannot be read: {words}", ending.message)
    assert arrived == {0: Arrived(finished=Finished("r0", FinishReason.Error, ending.line))}
    [record] = [one for one in caplog.records if "cannot be read" in one.getMessage()]
    assert record.exc_info is not None, "the traceback is in the log"


def test_an_event_that_the_front_cannot_take_is_no_silence_when_the_engine_has_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure falls into the reading after the exit: the words of the engine come later and are not there."""

    def takes_none(event: object) -> None:
        raise KeyError("phases")

    async def run() -> Ending:
        return (await ending_of(EngineClient(takes_none, (sys.executable, "-c", LAST_WORDS)), tmp_path))[0]

    ending = asyncio.run(run())
    assert ending.code is ExitCode.EngineDied
    assert "cannot be read: KeyError: 'phases'" in ending.message
    assert "Traceback" in caplog.text


def test_the_last_words_of_an_engine_are_heard_however_much_came_before_them(tmp_path: Path) -> None:
    async def run() -> Ending:
        client = EngineClient(lambda event: time.sleep(0.002), (sys.executable, "-c", LAST_WORDS))  # a busy front
        try:
            return await asyncio.wait_for(client.run(tmp_path), 60)
        finally:
            client.close()

    assert asyncio.run(run()) == Ending(ExitCode.CaptureFailed, "the last words")


def ended(code: str, ranks: int, tmp_path: Path) -> Ending:
    async def run() -> Ending:
        client = EngineClient(lambda event: None, (sys.executable, "-c", code), ranks)
        try:
            return await asyncio.wait_for(client.run(tmp_path), 60)
        finally:
            client.close()

    return asyncio.run(run())


def test_an_engine_that_ends_without_a_word_is_the_first_of_its_ranks(tmp_path: Path) -> None:
    killed = "import os; os.kill(os.getpid(), 9)"
    one, first = ended(killed, 1, tmp_path), ended(killed, 2, tmp_path)
    assert (one.code, first.code) == (ExitCode.EngineDied, ExitCode.RankDied)
    assert re.fullmatch(
        r"rank 0 of 2, the engine process \d+, ended by signal SIGKILL without a word; .*", first.message
    )


def test_a_temporary_folder_with_a_path_too_long_for_sockets_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the sockets of ranks, whose names are longer than the front's own."""
    (folder := tmp_path / ("x" * (80 - len(str(tmp_path))))).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    log, config = tmp_path / "termination", engine_json(tmp_path, tmp_path)
    options, parsed = ServeOptions(config, termination_log=log), EngineConfig.parse(config.read_bytes())
    checked = Checked(parsed, "hash", None, None)
    assert run(options, checked, cast(Any, None), cast(Any, None)) == ExitCode.SettingInvalid
    assert re.fullmatch(
        rf"SettingInvalid: no sockets in {folder}/graphpod-\w+: the path is too long for sockets; set TMPDIR .*",
        log.read_text(),
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", [ENGINE_COMMAND, COMMAND])
def test_files_of_the_folder_in_which_a_user_is_are_no_libraries(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Model folders have Python files, of any name."""
    (tmp_path / "queue.py").write_text("raise SystemExit('not ours')")
    found = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_stopped_rank_goes_with_the_first_one(tmp_path: Path, eventually: Eventually) -> None:
    """It does not run, so it cannot leave by itself."""
    pid = tmp_path / "pid"
    code = f"""
import os, pathlib, signal, subprocess, sys
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
os.kill(rank.pid, signal.SIGSTOP)
pathlib.Path({str(pid)!r}).write_text(str(rank.pid))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert ended(code, 2, tmp_path).code is ExitCode.RankDied
    state = Path("/proc", pid.read_text(), "stat")
    # without a first process that reaps it, it stays as a zombie
    eventually(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z")


def test_a_crash_of_another_rank_in_a_capture_counts_as_one_of_the_capture(tmp_path: Path) -> None:
    """So that the operator plans a weaker policy after a few, as after those of an engine of one rank."""
    words = 'Fatal("RankDied", "rank 1 of 2 has ended at Capturing: signal SIGSEGV", 31, True)'
    ending = ended(LAST_WORDS.replace('Fatal("CaptureFailed", "the last words", 12)', words), 2, tmp_path)
    assert ending.crashed
    status = first_status(engine_json(tmp_path, tmp_path))
    status.report = {**status.report, "state": State.Capturing}
    assert in_capture(ending, status) == Ending(
        ExitCode.CaptureFailed, "while capturing prefill: rank 1 of 2 has ended at Capturing: signal SIGSEGV"
    )
    status.report = {**status.report, "state": State.Ready}
    assert in_capture(ending, status) == ending
