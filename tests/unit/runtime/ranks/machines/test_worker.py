"""A machine that is not the leader's: its options, what ends it, and what the leader's says of it then."""

import signal
from pathlib import Path

import pytest

from graphpod_policy import EngineConfig, ExitCode
from graphpod_policy.start.flags import BY_FLAGS
from graphpod_runtime.base.leader import LEADER
from graphpod_runtime.base.process.signals import asks_to_end
from graphpod_runtime.cli import main
from graphpod_runtime.commands import worker as worker_command
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.ranks.roster import Roster
from graphpod_runtime.engine.ranks.worker import joined
from tests.unit.runtime.ranks.machines.conftest import Worker, eventually_in_trouble


def test_a_rank_of_another_machine_that_ends_is_named_with_its_signal(
    roster: Roster, two_machines: EngineConfig, tmp_path: Path
) -> None:
    worker = Worker(two_machines, tmp_path, roster.leader)
    roster.wait(lambda missing: None, 0.01)
    (folder := tmp_path / "leader").mkdir()
    others = Others(two_machines, folder, roster=roster)
    worker.process.code = -signal.SIGKILL
    fatal = eventually_in_trouble(others)
    assert (fatal.reason, fatal.message) == (
        "RankDied",
        "rank 1 of 2 (stage 1 of 2) has ended at Import: signal SIGKILL",
    )
    others.kill()
    worker.thread.join(10)
    (ended,) = worker.ended
    assert ended is not None
    assert (ended.code, ended.message.split(";")[0]) == (ExitCode.RankDied, "rank 1 has ended: signal SIGKILL")
    others.abandon()
    others.close()


def test_a_machine_that_goes_is_named_with_its_ranks(
    roster: Roster, two_machines: EngineConfig, tmp_path: Path
) -> None:
    with joined(two_machines, roster.leader, 1):
        roster.wait(lambda missing: None, 0.01)
        others = Others(two_machines, tmp_path, roster=roster)
    fatal = eventually_in_trouble(others)
    assert (fatal.reason, fatal.message) == ("RankDied", "machine 1 of 2 (127.0.0.1) has gone, with rank 1")
    others.abandon()
    others.close()


def test_without_the_leader_a_machine_ends_its_ranks(
    roster: Roster, two_machines: EngineConfig, tmp_path: Path
) -> None:
    worker = Worker(two_machines, tmp_path, roster.leader)
    roster.wait(lambda missing: None, 0.01)
    roster.close()
    worker.thread.join(20)
    (ended,) = worker.ended
    assert ended is not None
    assert ended.code == ExitCode.RankDied
    assert f"the leader's machine, {roster.leader}, has gone" in ended.message
    assert worker.did == ["kill 1"]


def test_a_machine_whose_ranks_were_let_go_ends_well(
    roster: Roster, two_machines: EngineConfig, tmp_path: Path
) -> None:
    worker = Worker(two_machines, tmp_path, roster.leader)
    roster.wait(lambda missing: None, 0.01)
    worker.process.code = ExitCode.Drained
    worker.thread.join(10)
    assert worker.ended == [None]
    assert roster.away[1].wait(5) == ExitCode.Drained
    assert roster.gone == ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--nodes", "2"), ExitCode.SettingInvalid, "--node-index 1 needs --leader HOST:PORT: '' is not HOST:PORT"),
        (("--nodes", "2", "--leader", "host"), ExitCode.SettingInvalid, "'host' is not HOST:PORT"),
        (("--leader", "h:1"), ExitCode.SettingInvalid, "--node-index 1: the engine has 1 machines for 2 ranks"),
        (("--nodes", "3", "--leader", "h:1"), ExitCode.ParallelismInvalid, "ranks: nodes 3 do not divide 2 ranks"),
        (
            ("--nodes", "2", "--leader", "h:1", "--tensor-parallel", "3"),
            ExitCode.ParallelismInvalid,
            "ranks: tensor 3 does not divide 4 attention heads",
        ),
    ],
)
def test_a_worker_says_what_is_wrong_with_its_options(
    two: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_signals: None,
    words: tuple[str, ...],
    code: ExitCode,
    said: str,
) -> None:
    for name in (LEADER, BY_FLAGS):
        monkeypatch.setenv(name, "")  # it is as it was after the test, whatever the command sets
    log = tmp_path / "termination"
    command = ("serve", "--model", str(two), "--device", "cpu", "--pipeline-parallel", "2", "--node-index", "1")
    assert main([*command, "--termination-log", str(log), *words]) == code
    assert said in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_worker_that_nobody_has_let_in_ends_as_it_is_asked(own_signals: None, number: signal.Signals) -> None:
    """Before, a signal ends it; once it is let in, the leader's machine does, or a second Ctrl-C."""
    for one in asks_to_end():
        signal.signal(one, worker_command._leave)
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(number)
    assert ended.value.code == ExitCode.Drained
    worker_command._stay()
    signal.raise_signal(number)
    if number is signal.SIGINT:
        with pytest.raises(SystemExit):
            signal.raise_signal(number)
    else:
        signal.raise_signal(number)
