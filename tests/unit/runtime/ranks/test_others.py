"""What the first rank makes of the ends of the others."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from graphpod_operator.render.pod.template import EXIT_SECONDS
from graphpod_policy import Device, ExitCode, Policy
from graphpod_runtime.base.failure import RankFailed, StartFailure
from graphpod_runtime.base.process import processors
from graphpod_runtime.engine.ranks import leading, start
from graphpod_runtime.engine.ranks.leading import LeadingRunner
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import Beat, LastWords
from graphpod_runtime.engine.ranks.others import LEAVE_SECONDS, Others, RankLost, started
from graphpod_runtime.engine.ranks.rank_sockets import Voice
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import node
from graphpod_runtime.engine.start.device import device_of
from graphpod_runtime.front import app, drain
from graphpod_runtime.wire.messages import Fatal, Heartbeat
from graphpod_runtime.wire.report import State
from tests.eventually import Eventually
from tests.unit.runtime.conftest import engine_config


class Process:
    """Of a rank; `code` once it has ended. The kernel may hold it for ever."""

    pid = 0

    def __init__(self, rank: int, did: list[str], *, held: bool = False) -> None:
        self._rank, self._did, self._held = rank, did, held
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self._did.append(f"kill {self._rank}")
        if not self._held:
            self.code = self.code or -9

    def wait(self, timeout: float | None = None) -> int:
        self._did.append(f"wait {self._rank}")
        if self.code is None:
            raise subprocess.TimeoutExpired("rank", timeout or 0.0)
        return self.code


@pytest.mark.parametrize(
    ("witness", "said"),
    [
        (True, "RankDied: rank 2 of 3 has ended at Import: signal SIGKILL"),
        (False, "CaptureFailed: rank 1: cannot go on"),
    ],
)
def test_a_rank_that_could_say_nothing_is_blamed_for_the_words_of_a_witness_alone(
    llama_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
    witness: bool,
    said: str,
) -> None:
    """The kernel ends one for its memory in the passes before captures; the other fails where it computes with it."""
    monkeypatch.setattr("graphpod_runtime.engine.ranks.others.LAST_WORDS_SECONDS", 60.0)  # until they have come
    processes = [Process(rank, []) for rank in (1, 2)]
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, tensor=3)
    others, voice = Others(config, tmp_path, lambda meeting, rank: processes[rank - 1]), Voice(Meeting(tmp_path), 1)
    words = Fatal("CaptureFailed", "cannot go on", ExitCode.CaptureFailed)
    processes[1].code = -9
    voice.say(LastWords(1, words, witness=witness))
    voice.close()
    trouble = eventually(others.cause)
    others.close()
    assert f"{trouble.reason}: {trouble.message}" == said


def test_a_rank_that_imports_is_not_taken_for_one_that_stands_still(
    llama_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Neither is one that has not begun to beat: on a throttled CPU a library is loaded for longer than that."""
    monkeypatch.setattr("graphpod_runtime.engine.ranks.others.SILENT_SECONDS", -1.0)
    processes = [Process(rank, []) for rank in (1, 2, 3)]
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, tensor=4)
    others = Others(config, tmp_path, lambda meeting, rank: processes[rank - 1])
    for rank, stage in ((2, "Import"), (3, "Loading")):
        voice = Voice(Meeting(tmp_path), rank)
        voice.say(Beat(rank, Heartbeat(time.monotonic(), stage)))
        voice.close()
    trouble = eventually(others.cause)
    others.close()
    assert trouble.message.startswith("rank 3 of 4 stands still at Loading: no heartbeat for")


def test_all_are_ended_before_one_is_waited_for_and_none_for_ever(llama_folder: Path, tmp_path: Path) -> None:
    did: list[str] = []
    processes = [Process(1, did, held=True), Process(2, did)]
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, tensor=3)
    others = Others(config, tmp_path, lambda meeting, rank: processes[rank - 1])
    others.abandon()
    assert did == ["kill 1", "kill 2", "wait 1", "wait 2"]
    others.close()


def leading_beside(trouble: Fatal) -> LeadingRunner:
    runner = object.__new__(LeadingRunner)
    others = SimpleNamespace(cause=lambda: trouble, abandon=lambda: None, trouble=None, awaited=False)
    runner._others = others  # type: ignore[assignment]
    return runner


def test_a_crash_of_another_rank_before_captures_stays_one_though_this_one_fails_by_it() -> None:
    """It counts for spec.graph.retries; what another rank says is that rank's own failure."""
    own = RankFailed(ExitCode.CaptureFailed, "rank 0 cannot go on")
    died = Fatal("RankDied", "rank 1 of 2 has ended", ExitCode.RankDied, crashed=True)
    with pytest.raises(RankLost) as lost, leading_beside(died)._naming():
        raise own
    assert lost.value.fatal is died
    with pytest.raises(StartFailure) as caught, leading_beside(Fatal("ModelInvalid", "rank 1: no", 11))._naming():
        raise own
    assert (caught.value.code, caught.value.message) == (ExitCode.ModelInvalid, "rank 1: no")


def test_a_start_that_begins_when_another_rank_has_ended_has_its_words_and_leaves_no_rank() -> None:
    did: list[str] = []
    died = Fatal("RankDied", "rank 1 of 2 has ended", ExitCode.RankDied)
    said = Fatal("ModelInvalid", "rank 1: no", ExitCode.ModelInvalid)
    for trouble, error in ((said, StartFailure), (died, RankLost)):
        runner: Any = object.__new__(LeadingRunner)
        runner._others = SimpleNamespace(trouble=trouble, abandon=lambda: did.append("abandon"), awaited=False)
        with pytest.raises(error, match=trouble.message), runner._naming(starts=True):
            raise AssertionError("it begins")
        assert not runner._others.awaited
    assert did == ["abandon"] * 2


def test_an_interrupted_pass_ends_the_others_which_wait_in_it_for_ever() -> None:
    did: list[str] = []
    runner = object.__new__(LeadingRunner)
    others = SimpleNamespace(abandon=lambda: did.append("abandon"), trouble=None, awaited=False)
    runner._others = others  # type: ignore[assignment]

    def passing() -> NoReturn:
        with runner._naming():
            did.append("pass")
        assert others.awaited, "the outer part of it goes on"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), runner._naming():
        passing()
    assert (did, others.awaited) == (["pass", "abandon"], False)


@pytest.mark.parametrize("starts", [False, True])
def test_a_pass_that_was_let_go_when_a_rank_had_ended_is_no_result(starts: bool) -> None:
    """A GPU goes on with any values then, without an error of its own."""
    died = Fatal("RankDied", "rank 1 of 2 has ended", ExitCode.RankDied)
    others: Any = SimpleNamespace(trouble=None, abandon=lambda: None, awaited=False)
    runner = object.__new__(LeadingRunner)
    runner._others = others
    with pytest.raises(RankLost, match="rank 1 of 2 has ended"), runner._naming(starts=starts):
        others.trouble = died
    assert not others.awaited


@pytest.mark.parametrize("how", ["leave", "abandon", "died"])
def test_kernels_are_let_go_before_graphs_end_where_ranks_have_not_left(
    monkeypatch: pytest.MonkeyPatch, how: str, llama_folder: Path, tmp_path: Path
) -> None:
    did: list[str] = []
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, tensor=2)
    others = Others(config, tmp_path, lambda meeting, rank: Process(1, []))
    monkeypatch.setattr(leading, "let_go", lambda: did.append("let go"))
    monkeypatch.setattr(leading, "disconnect", lambda: did.append("disconnect"))
    if how == "died":
        others.trouble = Fatal("RankDied", "rank 1 of 2 has ended", ExitCode.RankDied)
    elif how == "abandon":
        others.abandon()
    leading._leave(others, [SimpleNamespace(reset=lambda: did.append("reset"))])  # type: ignore[list-item]
    assert did == [*([] if how == "leave" else ["let go"]), "reset", "disconnect"]


@pytest.mark.parametrize("awaited", [False, True])
def test_a_rank_that_ends_between_passes_ends_the_next_pass_and_not_the_process_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, awaited: bool
) -> None:
    """Only one that waits for it without end, as on a GPU, has no other way out."""
    monkeypatch.setattr(start, "CAUSE_SECONDS", 0.0)
    did: list[str] = []
    died = Fatal("RankDied", "rank 1 of 2 has ended", ExitCode.RankDied)
    others: Any = SimpleNamespace(
        wait_for_trouble=lambda: died, kill=lambda: None, remove_folder=lambda: None, trouble=died, awaited=awaited
    )
    start._end_with(others, lambda fatal: did.append(fatal.message))
    assert did == (["rank 1 of 2 has ended"] if awaited else [])
    runner = object.__new__(LeadingRunner)
    runner._others = others
    with pytest.raises(RankLost, match="rank 1 of 2 has ended"), runner._naming():
        did.append("a pass")
    assert "a pass" not in did


def test_a_pass_that_begins_while_a_rank_ends_sees_it_or_is_seen_to_wait() -> None:
    """Whichever of both threads looks first: one that saw neither would leave a pass that waits for ever."""
    died = Fatal("RankDied", "rank 1 of 2 has ended", ExitCode.RankDied)

    class EndsNow:
        awaited = False
        abandon = staticmethod(lambda: None)
        cause = staticmethod(lambda: died)

        @property
        def trouble(self) -> Fatal | None:
            assert self.awaited, "the thread that sees trouble now would let this pass wait"
            return None

    runner: Any = object.__new__(LeadingRunner)
    runner._others = EndsNow()
    with runner._naming():
        pass
    assert not runner._others.awaited


def test_how_ranks_end_that_were_let_go_is_no_trouble(
    llama_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the group of this process is an error of theirs, where they are in a pass."""
    monkeypatch.setattr("graphpod_runtime.engine.ranks.others.LOOK_SECONDS", 0.01)
    process = Process(1, [])
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, tensor=2)
    others = Others(config, tmp_path, lambda meeting, rank: process)
    others.leave()
    process.code = ExitCode.EngineDied
    assert others.wait_for_trouble() is None
    others.close()
    assert others.trouble is None


def test_a_start_that_fails_leaves_no_rank_though_its_error_holds_the_runner(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a notebook holds the latest error: the next engine finds no group of this one."""
    left: list[object] = []

    class Failing(LeadingRunner):
        def __init__(self) -> None:
            self.leave = lambda: left.append(self)  # type: ignore[assignment]

        def start(self) -> None:
            raise KeyboardInterrupt

    failing = Failing()
    monkeypatch.setattr(start, "runner_of", lambda config, report: failing)
    with pytest.raises(KeyboardInterrupt):
        start.started_runner(engine_config(llama_folder, Policy.Disabled, Policy.Disabled), lambda report: None)
    assert left == [failing]


def test_the_front_waits_for_an_engine_that_waits_for_its_ranks() -> None:
    """Or it ends by force what is about to end, with files of compiled code left behind. The kubelet waits longer."""
    assert app.GOODBYE_SECONDS + app.RANKS_SECONDS > LEAVE_SECONDS + 1.0
    assert drain.CUT_SECONDS + app.GOODBYE_SECONDS + app.RANKS_SECONDS < EXIT_SECONDS


def test_a_start_that_another_rank_may_have_ended_is_reported_where_it_was(llama_folder: Path) -> None:
    states: list[State] = []

    def load(*arguments: object) -> None:
        raise RankFailed(ExitCode.CaptureFailed, "rank 0 cannot go on")

    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled)
    runner = Runner(config, lambda report: states.append(report.state), None, load)  # type: ignore[arg-type]
    with pytest.raises(RankFailed):
        runner.start()
    assert set(states) == {State.Loading}


def test_every_rank_names_the_gpus_that_all_of_them_need(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, device=Device.Cuda, tensor=8)
    for rank in (0, 1, 2, 7):
        with pytest.raises(StartFailure, match="sees 2 GPUs, the engine is to run on 8"):
            device_of(config.features, rank)


def test_ranks_without_a_number_of_threads_share_the_processors(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "QUOTA", llama_folder / "none")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    shares = {}
    for tensor in (1, 2, 4, 16):
        config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, tensor=tensor, threads=None)
        shares[tensor] = node.threads_of(config)
    assert shares == {1: None, 2: 6, 4: 3, 16: 1}
    assert node.threads_of(engine_config(llama_folder, Policy.Disabled, Policy.Disabled, tensor=2, threads=5)) == 5


def test_lines_of_a_rank_name_it_because_all_ranks_of_a_pod_write_one_log(llama_folder: Path, tmp_path: Path) -> None:
    """This one finds no first rank."""
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, tensor=3)
    (given := tmp_path / "engine.json").write_bytes(config.canonical())
    words = ("--config", str(given), "--folder", str(tmp_path), "--rank", "2", "--log-level", "40")
    ours, theirs = os.pipe()  # a rank ends when its first rank closes this
    command = [sys.executable, "-m", "graphpod_runtime.engine.ranks.process", *words]
    done = subprocess.run(command, stdin=ours, stderr=subprocess.PIPE, text=True)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == ExitCode.EngineDied
    lines = [line.partition(" graphpod.engine ")[2] for line in done.stderr.splitlines() if " graphpod.engine " in line]
    assert lines == ["ERROR rank 2: it cannot go on"]


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_a_rank_logs_as_much_as_the_process_that_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, **_: commands.append(words))
    monkeypatch.setattr(logging.getLogger("graphpod.engine"), "level", level)
    started(tmp_path / "engine.json", Meeting(tmp_path, None, 2), 1)
    (words,) = commands
    assert words[words.index("--log-level") + 1] == str(level)
