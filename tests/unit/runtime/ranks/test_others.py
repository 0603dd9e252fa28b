"""What the first rank makes of the ends of the others."""

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graphpod_policy import Device, ExitCode, Policy
from graphpod_runtime.base.failure import RankFailed, StartFailure
from graphpod_runtime.base.process import processors
from graphpod_runtime.engine.ranks.leading import LeadingRunner
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import Beat, LastWords
from graphpod_runtime.engine.ranks.others import Others, RankLost
from graphpod_runtime.engine.ranks.rank_sockets import Voice
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import node
from graphpod_runtime.engine.start.device import device_of
from graphpod_runtime.wire.messages import Fatal, Heartbeat
from graphpod_runtime.wire.report import State
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
    llama_folder: Path, tmp_path: Path, witness: bool, said: str
) -> None:
    """The kernel ends one for its memory in the passes before captures; the other fails where it computes with it."""
    processes = [Process(rank, []) for rank in (1, 2)]
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, tensor=3)
    others, voice = Others(config, tmp_path, lambda meeting, rank: processes[rank - 1]), Voice(Meeting(tmp_path), 1)
    words = Fatal("CaptureFailed", "cannot go on", ExitCode.CaptureFailed)
    processes[1].code = -9
    voice.say(LastWords(1, words, witness=witness))
    voice.close()
    trouble = others.cause()
    others.close()
    assert trouble is not None
    assert f"{trouble.reason}: {trouble.message}" == said


def test_a_rank_that_imports_is_not_taken_for_one_that_stands_still(
    llama_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    trouble = others.cause()
    others.close()
    assert trouble is not None
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
    runner._others = SimpleNamespace(cause=lambda: trouble, abandon=lambda: None)  # type: ignore[assignment]
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
