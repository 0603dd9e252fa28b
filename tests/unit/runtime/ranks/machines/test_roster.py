"""The machines of an engine that have come, and which of them are let in."""

import errno
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphpod_policy import EngineConfig, ExitCode, Policy, config_hash
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.files.model_sample import sample_of
from graphpod_runtime.base.leader import Leader
from graphpod_runtime.engine.ranks.callers import Callers
from graphpod_runtime.engine.ranks.roster import Ended, Greeting, Hello, Line, Roster, software
from graphpod_runtime.engine.ranks.worker import joined
from tests.eventually import Eventually
from tests.ports import free_ports
from tests.unit.runtime.ranks.conftest import config
from tests.unit.runtime.ranks.machines.conftest import addresses


def test_a_machine_is_let_in_once_and_with_the_same_configuration(roster: Roster, two_machines: EngineConfig) -> None:
    assert roster.missing == [1]
    for node in (0, 2):
        with pytest.raises(StartFailure, match=f"there is no machine {node}"):
            joined(two_machines, roster.leader, node, patience=0)
    other = config(Path(two_machines.model.path), Policy.Breakable, Policy.Full, pipeline=2, nodes=2)
    with pytest.raises(StartFailure, match="machine 1 has another configuration") as refused:
        joined(other, roster.leader, 1, patience=0)
    assert refused.value.code is ExitCode.ConfigInvalid
    with joined(two_machines, roster.leader, 1):
        roster.wait(lambda missing: None, 0.01)
        with pytest.raises(StartFailure, match="machine 1 has joined already"):
            joined(two_machines, roster.leader, 1, patience=0)


def test_a_connection_ends_where_the_network_is_cut_and_not_where_nothing_is_said() -> None:
    """Keepalive ends it with ETIMEDOUT, which Python raises as the TimeoutError of a wait that was too long."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        line = Line(socket.create_connection(listening.getsockname()))
        with line, pytest.raises(TimeoutError):
            line.heard(0.01)

        class Cut:
            def setsockopt(self, *option: object) -> None: ...

            settimeout = setsockopt

            def recv(self, size: int) -> bytes:
                raise OSError(errno.ETIMEDOUT, "Connection timed out")

        assert Line(Cut()).heard() is None  # type: ignore[arg-type]


def test_a_machine_of_another_image_is_not_let_in_and_both_are_named(
    roster: Roster, two_machines: EngineConfig
) -> None:
    """Not by its configuration, which another version may write otherwise."""
    own, mark = software(), config_hash(two_machines.canonical())
    assert re.fullmatch(r"graphpod [\w.]+ build \w{10}, torch 2[\w.+]+, Python 3[\w.]+, \w+", own)
    other = Hello(1, "another hash", software=own.replace("torch 2", "torch 1"))
    both = f"machine 1 has other software ({other.software}) than the leader's ({own})"
    assert roster._refused(other) == f"{both}: start all machines from the same image"
    assert "(of an earlier version)" in roster._refused(Hello(1, mark))
    assert roster._refused(Hello(1, mark, software=own)) == ""


def test_a_machine_with_another_copy_of_the_model_is_not_let_in(two_machines: EngineConfig, tmp_path: Path) -> None:
    """Its ranks would compute with other weights, and all answers be wrong."""
    own = Path(two_machines.model.path)
    shutil.copytree(own, other := tmp_path / "model")
    assert sample_of(other) == sample_of(own) != sample_of(tmp_path / "none")
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    assert sample_of(other) != sample_of(own)
    mark = config_hash(two_machines.canonical())
    roster = Roster(Leader("127.0.0.1", free_ports()), 2, 2, mark, sample_of(other))
    with pytest.raises(StartFailure, match="machine 1 has other files of the model than the leader's") as refused:
        joined(two_machines, roster.leader, 1, patience=0)
    assert refused.value.code is ExitCode.ConfigInvalid
    assert roster._refused(Hello(1, mark, software=software(), model=sample_of(other))) == ""
    roster.close()


def test_software_is_named_without_torch() -> None:
    """A worker waits for its leader with little memory."""
    code = "import sys; from graphpod_runtime.engine.ranks.roster import software; software(); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_machine_that_leaves_before_all_have_come_may_come_again(two: Path, eventually: Eventually) -> None:
    """With what its first ranks reported forgotten."""
    three = config(two, Policy.Disabled, Policy.Disabled, tensor=3, nodes=3)
    roster = Roster(Leader("127.0.0.1", free_ports()), 3, 3, config_hash(three.canonical()))
    with joined(three, roster.leader, 1) as first:
        assert roster.missing == [2]
        first.say(Ended(1, ExitCode.GpuMissing))
    eventually(lambda: roster.missing == [1, 2])
    with joined(three, roster.leader, 1), joined(three, roster.leader, 2):
        roster.wait(lambda missing: None, 0.01)
        assert (roster.gone, roster.away[1].code) == ("", None)
    eventually(lambda: bool(roster.gone))
    roster.close()


def test_a_machine_that_has_joined_is_none_of_the_callers_whom_strangers_end(
    roster: Roster, two_machines: EngineConfig, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Once all have come, the end of its connection would end the engine."""
    callers: Callers = roster._callers
    held: list[int] = []
    whole = roster._joined

    def held_meanwhile(*of: Any) -> str:
        refused = whole(*of)
        held.append(len(addresses(callers)))
        return refused

    monkeypatch.setattr(roster, "_joined", held_meanwhile)
    with joined(two_machines, roster.leader, 1):
        eventually(lambda: held)  # it is welcomed a little before
        assert (held, roster.missing, roster.gone) == ([0], [], "")


def test_a_machine_that_strangers_have_ended_does_not_join(
    roster: Roster, two_machines: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it said may be read though its connection has ended: it comes again."""
    tries: list[bool] = []
    goes = roster._callers.goes

    def ended_the_first_time(connection: socket.socket) -> bool:
        tries.append(goes(connection))
        return tries[-1] and len(tries) > 1

    monkeypatch.setattr(roster._callers, "goes", ended_the_first_time)
    with joined(two_machines, roster.leader, 1):
        assert (roster.missing, roster.gone) == ([], "")
    assert len(tries) > 1


def test_a_roll_that_is_closed_lets_no_machine_in_that_called_before(
    roster: Roster, two_machines: EngineConfig
) -> None:
    with socket.create_connection((roster.leader.host, roster.leader.port), timeout=5) as late:
        line = Line(late)
        greeting = msgspec.json.decode(line.heard(5) or b"", type=Greeting)
        roster.close()
        line.say(Hello.of(1, config_hash(two_machines.canonical()), greeting, roster.leader.key))
        assert line.heard(5) is None, "neither let in nor refused"
    assert roster.missing == [1]


def test_a_roll_that_is_closed_leaves_its_port(roster: Roster) -> None:
    roster.close()
    socket.create_server(("127.0.0.1", roster.leader.port)).close()
