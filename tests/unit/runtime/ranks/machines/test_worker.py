"""A machine that is not the leader's: its options, what ends it, and what the leader's says of it then."""

import signal
import threading
from pathlib import Path

import pytest

from graphpod_policy import EngineConfig, ExitCode, Policy, config_hash
from graphpod_policy.start.flags import BY_FLAGS
from graphpod_policy.start.stage_limits import IMPORT
from graphpod_runtime.base.leader import LEADER, Leader
from graphpod_runtime.base.process.signals import asks_to_end
from graphpod_runtime.cli import main
from graphpod_runtime.commands import worker as worker_command
from graphpod_runtime.engine.ranks import worker as worker_ranks
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.ranks.roster import Roster
from graphpod_runtime.engine.ranks.worker import joined
from graphpod_runtime.wire.messages import Fatal
from tests.eventually import Eventually
from tests.ports import free_ports
from tests.unit.runtime.ranks.conftest import config
from tests.unit.runtime.ranks.machines.conftest import Worker, eventually_in_trouble
from tests.unit.runtime.ranks.test_others import Process

LIMIT = 60.0
"""Seconds in which a thread ends on a machine that does much else."""


def test_a_rank_of_another_machine_that_ends_is_named_with_its_signal(
    roster: Roster, two_machines: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_ranks, "BLAMED_SECONDS", 600.0)
    worker = Worker(two_machines, tmp_path, roster.leader)
    roster.wait(lambda missing: None, 0.01)
    (folder := tmp_path / "leader").mkdir()
    others = Others(two_machines, folder, roster=roster)
    worker.process.code = -signal.SIGKILL
    fatal = eventually_in_trouble(others)
    assert (fatal.reason, fatal.message) == (
        "RankDied",
        "rank 1 of 2 (stage 2 of 2) has ended at Import: signal SIGKILL",
    )
    assert worker.thread.is_alive(), "its end would end the group before the leader has reported the cause"
    others.abandon()
    others.close()
    worker.thread.join(LIMIT)
    (ended,) = worker.ended
    assert ended is not None
    assert (ended.code, ended.message.split(";")[0]) == (ExitCode.RankDied, "rank 1 has ended: signal SIGKILL")


def test_a_worker_whose_rank_has_ended_does_not_wait_for_a_leader_that_stays(
    roster: Roster, two_machines: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_ranks, "BLAMED_SECONDS", 0.0)
    worker = Worker(two_machines, tmp_path, roster.leader)
    roster.wait(lambda missing: None, 0.01)
    worker.process.code = -signal.SIGKILL
    worker.thread.join(LIMIT)
    assert [fatal.code if fatal else None for fatal in worker.ended] == [ExitCode.RankDied]


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


def test_a_machine_that_reaches_only_the_port_where_it_joins_is_named_with_the_others(
    roster: Roster, two_machines: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphpod_runtime.engine.ranks.others.stage_limits", lambda plan: {IMPORT: 0.5})
    with joined(two_machines, roster.leader, 1):
        roster.wait(lambda missing: None, 0.01)
        others = Others(two_machines, tmp_path, roster=roster)
        fatal = eventually_in_trouble(others)
    port = roster.leader.port
    assert fatal.message.startswith("rank 1 of 2 (stage 2 of 2) stands still at Import: no heartbeat for")
    ports = f"its machine must reach ports {port} to {port + 3} of 127.0.0.1; open them in firewalls and Netw"
    assert f", and none before: {ports}" in fatal.message
    others.abandon()
    others.close()


def test_without_the_leader_a_machine_ends_its_ranks(
    roster: Roster, two_machines: EngineConfig, tmp_path: Path
) -> None:
    worker = Worker(two_machines, tmp_path, roster.leader)
    roster.wait(lambda missing: None, 0.01)
    roster.close()
    worker.thread.join(LIMIT)
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
    worker.thread.join(LIMIT)
    assert worker.ended == [None]
    assert roster.away[1].wait(LIMIT) == ExitCode.Drained
    assert roster.gone == ""


def test_ranks_of_a_machine_begin_when_all_machines_have_come(
    two: Path, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that waited for a third one would give up in the end. A leader's machine that goes before that has ended
    nothing: the next one is joined."""
    monkeypatch.setattr(worker_ranks, "AGAIN_SECONDS", 0.01)
    three = config(two, Policy.Disabled, Policy.Disabled, tensor=3, nodes=3)
    leader, mark = Leader("127.0.0.1", free_ports()), config_hash(three.canonical())
    begun: list[int] = []

    def begins(meeting: Meeting, rank: int) -> Process:
        begun.append(rank)
        return Process(rank, [])

    earlier = Roster(leader, 3, 3, mark)
    ended: list[Fatal | None] = []
    thread = threading.Thread(target=lambda: ended.append(worker_ranks.work(three, tmp_path, leader, 1, begins)))
    thread.start()
    eventually(lambda: earlier.missing == [2])
    earlier.close()
    roster = Roster(leader, 3, 3, mark)
    eventually(lambda: roster.missing == [2])
    assert begun == []
    with joined(three, leader, 2):
        roster.wait(lambda missing: None, 0.01)
        eventually(lambda: begun == [1])
        roster.close()
    thread.join(LIMIT)
    assert [fatal.code if fatal else None for fatal in ended] == [ExitCode.RankDied]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--nodes", "2"), ExitCode.SettingInvalid, "--node-index 1 needs --leader HOST:PORT: '' is not HOST:PORT"),
        (("--nodes", "2", "--leader", "host"), ExitCode.SettingInvalid, "'host' is not HOST:PORT"),
        (("--leader", "h:1"), ExitCode.SettingInvalid, "--node-index 1: the engine has 1 machine; set --nodes to"),
        ((), ExitCode.SettingInvalid, "--node-index 1: the engine has 1 machine; set --nodes to"),
        (
            ("--nodes", "2", "--node-index", "2"),
            ExitCode.SettingInvalid,
            "--node-index 2: the engine has 2 machines, with the numbers 0 to 1; use one of these",
        ),
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
