"""The leader's address, and the ports and files at which ranks of several machines meet."""

import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from graphpod_policy import ExitCode
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.leader import Leader, ports_of
from graphpod_runtime.distributed import connection, interface, pair
from graphpod_runtime.distributed.agreement import ALONE
from graphpod_runtime.distributed.interface import interface_to
from graphpod_runtime.distributed.pipeline import Position
from graphpod_runtime.engine.ranks.meeting import Meeting, ranks_of


@pytest.mark.parametrize("text", ["host:29500", "10.0.0.1:1", "[fd00::1]:65535"])
def test_an_address_reads_as_it_is_written(text: str) -> None:
    assert str(Leader.parse(text)) == text


@pytest.mark.parametrize("text", ["", "host", ":1", "host:0", "host:65536", "host:x", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Leader.parse(text)


def test_ports_beyond_the_last_one_are_refused() -> None:
    with pytest.raises(ValueError, match="'host:65536' is not HOST:PORT: ports are 1 to 65535"):
        Leader.parse("host:65536")
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


LOOPBACK = (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", 1))


def test_a_leader_whose_name_one_server_does_not_know_yet_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has found it, or the leader's machine its own: other ranks may ask another server."""
    answers: list[Any] = [socket.gaierror(-2, "Name or service not known")] * 2 + [[LOOPBACK]]

    def looked_up(host: str, port: int, **more: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setattr(interface, "AGAIN_SECONDS", 0.0)
    assert interface_to("chat-group-0.chat-group", 1) == "lo"


def test_an_address_that_nothing_leads_to_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without IPv6 may get an IPv6 address first."""
    found = [(socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("not an address", 1)), LOOPBACK]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **more: found)
    assert interface_to("leader", 1) == "lo"


def test_a_leader_that_nothing_leads_to_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str, port: int) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(connection, "interface_to", unknown)
    with pytest.raises(StartFailure, match=r"leads from this machine to the leader's, gone: Name or .*--leader") as no:
        connection.connect(Position(1, 1, 2), "tcp://gone:29501", torch.device("cpu"))
    assert no.value.code is ExitCode.SettingInvalid


def test_machines_of_one_name_are_two_and_containers_of_one_machine_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their GPUs do not see each other's memory, whatever the driver says of two GPUs of one machine."""
    places = []
    for name, kernel in (("gpu", "a"), ("gpu", "b"), ("pod", "a"), ("gpu", "a")):
        (path := tmp_path / "boot_id").write_text(kernel)
        monkeypatch.setattr(pair, "BOOT_ID", path)
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        places += pair.places_of(torch.device("cpu"), ALONE)
    assert len({place.machine for place in places}) == 3
    assert places[0] == places[3]
