"""Ranks of several machines: who is let in, what ends all of them, and that they write what one rank writes."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import zmq

from graphpod_policy import EngineConfig, ExitCode, Policy, config_hash
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.group_key import GROUP_KEY, KeyInvalid
from graphpod_runtime.base.leader import LEADER, Leader
from graphpod_runtime.cli import main
from graphpod_runtime.commands import worker as worker_command
from graphpod_runtime.distributed.interface import interface_to
from graphpod_runtime.engine import process
from graphpod_runtime.engine.pulse import Pulse
from graphpod_runtime.engine.ranks import worker as worker_ranks
from graphpod_runtime.engine.ranks.callers import MOST_CALLERS, MOST_OF_ADDRESS, Callers
from graphpod_runtime.engine.ranks.meeting import Meeting, ports_of, ranks_of
from graphpod_runtime.engine.ranks.messages import Copied, LastWords, Leave, encode
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.ranks.rank_sockets import MOST_NOTICES, FirstEnds, Orders, Voice
from graphpod_runtime.engine.ranks.roster import LINE_BYTES, Ended, Greeting, Hello, Line, Roster, Welcome, software
from graphpod_runtime.engine.ranks.start import runner_of
from graphpod_runtime.engine.ranks.worker import joined, work
from graphpod_runtime.wire.messages import Fatal
from tests.eventually import Eventually
from tests.unit.runtime.ranks.conftest import GREEDY, alone, config
from tests.unit.runtime.ranks.rank_forks import RankForks
from tests.unit.runtime.ranks.test_others import Process

KEY = "the key of this group"
PORTS = 8
"""After the leader's own: two, and one for each rank."""


def free_ports() -> int:
    """The first of PORTS that are free in a row."""
    for port in range(21000, 32000, PORTS):
        with ExitStack() as bound:
            try:
                for one in range(port, port + PORTS):
                    bound.enter_context(socket.create_server(("127.0.0.1", one)))
            except OSError:
                continue
            return port
    raise AssertionError("no free ports")


@pytest.fixture
def two_machines(two: Path) -> EngineConfig:
    return config(two, Policy.Disabled, Policy.Disabled, pipeline=2, nodes=2)


@pytest.fixture
def roster(two_machines: EngineConfig) -> Iterator[Roster]:
    made = Roster(Leader("127.0.0.1", free_ports()), 2, 2, config_hash(two_machines.canonical()))
    yield made
    made.close()


class Worker:
    """Machine 1 in a thread, with a process for its rank that ends as it is told."""

    def __init__(self, engine: EngineConfig, folder: Path, leader: Leader) -> None:
        self.did: list[str] = []
        self.process = Process(1, self.did)
        self.ended: list[Fatal | None] = []

        def run() -> None:
            self.ended.append(work(engine, folder, leader, 1, lambda meeting, rank: self.process))

        self.thread = threading.Thread(target=run)
        self.thread.start()


def eventually_in_trouble(others: Others) -> Fatal:
    found = others.cause()
    assert found is not None
    return found


@pytest.mark.parametrize("text", ["host:29500", "10.0.0.1:1", "[fd00::1]:65535"])
def test_an_address_reads_as_it_is_written(text: str) -> None:
    assert str(Leader.parse(text)) == text


@pytest.mark.parametrize("text", ["", "host", ":1", "host:0", "host:65536", "host:x", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Leader.parse(text)


def test_ports_beyond_the_last_one_are_refused() -> None:
    assert Leader.parse("host:65532", ports_of(2)).port == 65532
    with pytest.raises(ValueError, match="needs ports up to 65536, and 65535 is the last"):
        Leader.parse("host:65533", ports_of(2))


def test_ranks_of_the_leaders_machine_use_files_and_all_others_ports_of_their_own(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, Leader("leader", 29500), here=2)
    assert [list(ranks_of(node, 3, 6)) for node in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert meeting.orders_of(1) == f"ipc://{tmp_path}/rank-1"
    assert [meeting.orders_of(rank) for rank in (2, 3)] == ["tcp://leader:29504", "tcp://leader:29505"]
    assert (meeting.notices_of(1), meeting.notices_of(2)) == (f"ipc://{tmp_path}/notices", "tcp://leader:29502")
    assert meeting.bound("tcp://leader:29502") == "tcp://*:29502"
    assert meeting.collectives == "tcp://leader:29501"
    assert Meeting(tmp_path).collectives == f"file://{tmp_path}/meeting"


def test_the_interface_is_that_of_the_way_to_the_leader() -> None:
    assert interface_to("127.0.0.1", 1) == "lo"


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
        Line(first).say(Ended(1, ExitCode.GpuMissing))
    eventually(lambda: roster.missing == [1, 2])
    with joined(three, roster.leader, 1), joined(three, roster.leader, 2):
        roster.wait(lambda missing: None, 0.01)
        assert (roster.gone, roster.away[1].code) == ("", None)
    eventually(lambda: bool(roster.gone))
    roster.close()


def test_a_machine_that_has_joined_is_none_of_the_callers_whom_strangers_end(
    roster: Roster, two_machines: EngineConfig, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\n\n",
        b"{}\n",
        b"x" * (2 * LINE_BYTES),
        b'{"node": "1"}\n',
        b"\n",
        b'{"a": ' + b"[" * 2000 + b"\n",
        b'{"node": 1, "config_hash": "\xff"}\n',
    ],
)
def test_a_stranger_is_shown_out(roster: Roster, said: bytes) -> None:
    with socket.create_connection((roster.leader.host, roster.leader.port), timeout=5) as stranger:
        stranger.sendall(said)
        with suppress(ConnectionResetError):  # it was closed before all was read
            heard = b"".join(iter(lambda: stranger.recv(LINE_BYTES), b""))
            assert list(json.loads(heard)) == ["nonce"]
    assert roster.missing == [1]


def test_a_stranger_that_sends_a_byte_now_and_then_is_shown_out_as_soon() -> None:
    near, far = socket.socketpair(socket.AF_UNIX)
    line = object.__new__(Line)
    line.connection, line._unread = near, b""
    far.sendall(b"{")
    with near, far, pytest.raises(TimeoutError):
        line.heard(0.0)


class Endless:
    """A line on which one sends faster than anybody reads."""

    def poll(self, timeout: int) -> int:
        return 1

    def recv(self) -> bytes:
        return encode(Copied(1, 7))


def test_notices_without_an_end_are_read_in_parts(tmp_path: Path) -> None:
    ends = FirstEnds(Meeting(tmp_path), 2)
    own, ends._notices = ends._notices, cast("zmq.Socket[bytes]", Endless())
    assert len(ends.notices(1.0)) == MOST_NOTICES
    own.close()
    ends.close()


def test_what_a_stranger_sends_to_the_port_of_notices_is_passed_over(
    roster: Roster, two_machines: EngineConfig, tmp_path: Path
) -> None:
    worker = Worker(two_machines, tmp_path, roster.leader)
    roster.wait(lambda missing: None, 0.01)
    (folder := tmp_path / "leader").mkdir()
    others = Others(two_machines, folder, roster=roster)
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.connect(others.meeting.notices_of(1))
        no_rank = encode(LastWords(7, Fatal("EngineDied", "no rank", 1)))
        for frame in (b"", b"\xc1", b"\x91" * 4000, no_rank, no_rank.replace(b"no rank", b"no\xffrank")):
            stranger.send(frame)
        words = Fatal("EngineDied", "its own", 1)
        stranger.send(encode(LastWords(1, words)))
        assert eventually_in_trouble(others).message == "rank 1 (stage 1 of 2): its own"
    others.abandon()
    worker.thread.join(10)
    others.close()


@pytest.fixture
def keyed(two_machines: EngineConfig) -> Iterator[Roster]:
    made = Roster(Leader("127.0.0.1", free_ports(), KEY), 2, 2, config_hash(two_machines.canonical()))
    yield made
    made.close()


@pytest.mark.parametrize("key", ["", "another key of the group"])
def test_a_machine_without_the_key_of_the_group_is_not_let_in(
    keyed: Roster, two_machines: EngineConfig, key: str
) -> None:
    with pytest.raises(
        StartFailure, match="machine 1 does not prove the key of the group: set GRAPHPOD_GROUP_KEY"
    ) as refused:
        joined(two_machines, replace(keyed.leader, key=key), 1, patience=0)
    assert refused.value.code is (ExitCode.RankDied if key else ExitCode.ConfigInvalid)
    assert keyed.missing == [1]
    with joined(two_machines, keyed.leader, 1):
        assert keyed.missing == []


def test_a_machine_does_not_follow_a_leader_without_its_key(roster: Roster, two_machines: EngineConfig) -> None:
    with pytest.raises(
        StartFailure, match=r"who answers at 127\.0\.0\.1:\d+ does not prove the key of the group"
    ) as no:
        joined(two_machines, replace(roster.leader, key=KEY), 1, patience=0)
    assert no.value.code is ExitCode.RankDied
    assert "(answered by 127.0.0.1); if 127.0.0.1 led to a machine of another group, the next start" in str(no.value)


def test_a_machine_whose_leaders_name_leads_to_another_group_asks_until_it_leads_to_its_own(
    keyed: Roster, two_machines: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a group was made again: names of pods are resolved to earlier addresses for some seconds."""
    stale = Roster(Leader("127.0.0.1", free_ports(), "the key of another group"), 2, 2, "its configuration")
    connect, places = socket.create_connection, iter([stale.leader.port, stale.leader.port])

    def resolved(address: tuple[str, int], timeout: float) -> socket.socket:
        return connect((address[0], next(places, address[1])), timeout=timeout)

    monkeypatch.setattr(worker_ranks, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(socket, "create_connection", resolved)
    with joined(two_machines, keyed.leader, 1):
        assert (keyed.missing, stale.missing) == ([], [1])
    stale.close()


def addresses(callers: Callers) -> list[str]:
    return list(callers._addresses.values())


def test_strangers_that_say_nothing_are_shown_out_after_a_second_and_the_oldest_of_many_at_once(
    roster: Roster, two_machines: EngineConfig, eventually: Eventually
) -> None:
    """As many as there may be keep no machine out, and one that has joined is never ended by them."""
    where = roster.leader.host, roster.leader.port
    with ExitStack() as strangers:
        first = strangers.enter_context(socket.create_connection(where))
        for _ in range(2 * MOST_OF_ADDRESS):
            strangers.enter_context(socket.create_connection(where))
        first.settimeout(10)
        assert b"".join(iter(lambda: first.recv(LINE_BYTES), b"")).startswith(b'{"nonce"'), "it has ended"
        with joined(two_machines, roster.leader, 1) as machine:
            assert roster.missing == []
            for _ in range(2 * MOST_OF_ADDRESS):
                strangers.enter_context(socket.create_connection(where))
            eventually(lambda: not addresses(roster._callers))
            assert roster.gone == ""
            Line(machine).say(Ended(1, 0))


def test_callers_are_bounded_of_each_address_and_of_all() -> None:
    callers = Callers()
    with ExitStack() as open_ones:

        def call(address: str) -> tuple[socket.socket, socket.socket]:
            near, far = socket.socketpair()
            open_ones.enter_context(near)
            open_ones.enter_context(far)
            callers.comes(near, address)
            return near, far

        alike = [call("10.0.0.1") for _ in range(MOST_OF_ADDRESS + 1)]
        assert alike[0][1].recv(1) == b"", "the oldest has ended"
        assert len(addresses(callers)) == MOST_OF_ADDRESS
        others = [call(f"10.0.1.{number}") for number in range(MOST_CALLERS - MOST_OF_ADDRESS)]
        callers.goes(others[0][0])
        call("10.0.2.1")
        assert len(addresses(callers)) == MOST_CALLERS
        call("10.0.2.2")
        assert alike[1][1].recv(1) == b""
        assert len(addresses(callers)) == MOST_CALLERS


def test_a_line_whose_first_byte_does_not_come_is_not_waited_for_as_long_as_its_end() -> None:
    near, far = socket.socketpair()
    with near, far:
        line = object.__new__(Line)
        line.connection, line._unread = near, b""
        with pytest.raises(TimeoutError, match="no line within 0 s"):
            line.heard(10.0, 0.0)
        line._unread = b"{"
        far.sendall(b"}\n")
        assert line.heard(10.0, 0.0) == b"{}"


def test_a_proof_that_was_heard_on_the_way_is_worth_nothing_later() -> None:
    greeting, later = Greeting("a"), Greeting("b")
    hello = Hello.of(1, "hash", greeting, KEY)
    assert hello.is_proved(greeting, KEY)
    assert not hello.is_proved(later, KEY)
    assert not msgspec.structs.replace(hello, node=2).is_proved(greeting, KEY)
    welcome = Welcome.of(hello, greeting, KEY)
    assert welcome.is_proved(hello, greeting, KEY)
    assert not welcome.is_proved(Hello.of(1, "hash", greeting, KEY), greeting, KEY)
    assert not Welcome(proof=hello.proof).is_proved(hello, greeting, KEY)


@pytest.mark.parametrize("key", ["short", "k" * 257])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"GRAPHPOD_GROUP_KEY has {len(key)} characters; set 16 to 256"):
        Leader.parse("host:1", key=key)


def test_a_key_that_is_no_text_is_refused_and_not_shown() -> None:
    with pytest.raises(KeyInvalid) as refused:
        Leader.parse("host:1", key="the key of this \udcff group")
    assert str(refused.value) == "GRAPHPOD_GROUP_KEY is not UTF-8; set 16 to 256 characters of ASCII"


def test_a_stranger_without_the_key_forges_no_notice_and_gets_no_order(
    keyed: Roster, two_machines: EngineConfig, tmp_path: Path, eventually: Eventually
) -> None:
    worker = Worker(two_machines, tmp_path, keyed.leader)
    keyed.wait(lambda missing: None, 0.01)
    (folder := tmp_path / "leader").mkdir()
    others = Others(two_machines, folder, roster=keyed)
    meeting = Meeting(tmp_path, keyed.leader, here=1)
    with zmq.Context() as context, context.socket(zmq.PUSH) as forger, context.socket(zmq.PAIR) as listener:
        forger.setsockopt(zmq.LINGER, 0)
        forger.connect(meeting.notices_of(1))
        listener.connect(meeting.orders_of(1))
        forger.send(encode(LastWords(1, Fatal("EngineDied", "forged", 1))))
        own, voice = Orders(meeting, 1), Voice(meeting, 1)

        def is_sent() -> bool:
            with suppress(zmq.Again):  # nobody who has the key is connected yet
                others.send(Leave())
                return True
            return False

        eventually(is_sent)
        assert own.next() == Leave()
        voice.say(LastWords(1, Fatal("EngineDied", "its own", 1)))
        assert eventually_in_trouble(others).message == "rank 1 (stage 1 of 2): its own"
        assert not listener.poll(0)
    voice.close()
    own.close()
    others.abandon()
    worker.thread.join(10)
    others.close()


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


def test_the_library_refuses_several_machines_by_name(two_machines: EngineConfig) -> None:
    with pytest.raises(
        StartFailure, match=r"several machines \(2\) are not built in Python; use graphpod-engine serve"
    ):
        runner_of(two_machines, lambda report: None)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--nodes", "2"), ExitCode.SettingInvalid, "--node-index 1 needs --leader HOST:PORT: '' is not HOST:PORT"),
        (("--nodes", "2", "--leader", "host"), ExitCode.SettingInvalid, "'host' is not HOST:PORT"),
        (("--leader", "h:1"), ExitCode.SettingInvalid, "--node-index 1: the engine has 1 machines for 2 ranks"),
        (("--nodes", "3", "--leader", "h:1"), ExitCode.SettingInvalid, "the engine has 3 machines for 2 ranks"),
    ],
)
def test_a_worker_says_what_is_wrong_with_its_options(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: ExitCode, said: str
) -> None:
    monkeypatch.setenv(LEADER, "")  # it is as it was after the test, whatever the command sets
    log = tmp_path / "termination"
    command = ("serve", "--model", str(two), "--device", "cpu", "--pipeline-parallel", "2", "--node-index", "1")
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main([*command, "--termination-log", str(log), *words]) == code
    finally:
        signal.signal(signal.SIGTERM, before)
    assert said in log.read_text()


@pytest.mark.parametrize(
    ("leader", "nodes", "reason", "said"),
    [
        ("", 2, "SettingInvalid", "an engine of 2 machines needs the address of the leader's: '' is not HOST:PORT"),
        ("127.0.0.1:1", 3, "ParallelismInvalid", "nodes 3 do not divide 2 ranks"),
    ],
)
def test_the_leaders_engine_says_what_is_wrong_before_it_waits_for_others(
    two: Path, monkeypatch: pytest.MonkeyPatch, leader: str, nodes: int, reason: str, said: str
) -> None:
    monkeypatch.setenv(LEADER, leader)
    engine = config(two, Policy.Disabled, Policy.Disabled, pipeline=2, nodes=nodes)
    with pytest.raises(StartFailure, match=said) as refused:
        process._roster(engine, Pulse())
    assert refused.value.reason == reason


def test_a_key_that_is_none_is_named_and_not_the_address(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEADER, "127.0.0.1:1")
    monkeypatch.setenv(GROUP_KEY, "short")
    engine = config(two, Policy.Disabled, Policy.Disabled, pipeline=2, nodes=2)
    said = "GRAPHPOD_GROUP_KEY has 5 characters; set 16 to 256"
    with pytest.raises(StartFailure) as refused:
        process._roster(engine, Pulse())
    assert (refused.value.reason, refused.value.message) == ("SettingInvalid", said)
    (path := tmp_path / "engine.json").write_bytes(engine.canonical())
    ending = worker_command._ending(path, 1)
    assert (ending.code, ending.message) == (ExitCode.SettingInvalid, said)


def test_a_worker_that_nobody_has_let_in_ends_as_it_is_asked() -> None:
    """Before, SIGTERM ends it; once it is let in, the leader's machine does."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, worker_command._leave)
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        worker_command._stay()
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == ExitCode.Drained


def test_a_port_that_is_taken_is_named(
    two_machines: EngineConfig, roster: Roster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEADER, str(roster.leader))
    with pytest.raises(StartFailure, match=f"--leader {roster.leader}: the port cannot be listened on"):
        process._roster(two_machines, Pulse())


def test_two_machines_write_what_one_rank_writes(ranks: RankForks, two: Path) -> None:
    """Each forks its own rank; they meet over TCP, and the worker ends when the leader lets it go."""
    settings = config(two, Policy.Breakable, Policy.Full, pipeline=2, nodes=2)
    found = ranks.answer(settings, GREEDY, port=free_ports())
    assert found.failure == ""
    assert [told.texts for told in found.told] == [told.texts for told in alone(two, GREEDY)]
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}
    assert (found.layers, found.machines, found.folders) == ((1, 1), [0], 0)
