"""The key of a group of machines: who does not prove it is not let in, not followed, and not heard."""

import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import zmq

from graphpod_policy import EngineConfig, ExitCode, Policy
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.group_key import GROUP_KEY, KeyInvalid
from graphpod_runtime.base.leader import LEADER, Leader
from graphpod_runtime.commands import worker as worker_command
from graphpod_runtime.engine import process
from graphpod_runtime.engine.pulse import Pulse
from graphpod_runtime.engine.ranks import worker as worker_ranks
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import LastWords, Leave, encode
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.ranks.rank_sockets import Orders, Voice
from graphpod_runtime.engine.ranks.roster import Greeting, Hello, Roster, Welcome
from graphpod_runtime.engine.ranks.worker import joined
from graphpod_runtime.wire.messages import Fatal
from tests.eventually import Eventually
from tests.ports import free_ports
from tests.unit.runtime.ranks.conftest import config
from tests.unit.runtime.ranks.machines.conftest import KEY, Worker, eventually_in_trouble


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
        assert eventually_in_trouble(others).message == "rank 1 (stage 2 of 2): its own"
        assert not listener.poll(0)
    voice.close()
    own.close()
    others.abandon()
    worker.thread.join(60)
    others.close()


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
