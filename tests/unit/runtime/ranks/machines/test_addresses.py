"""The leader's address, and the ports and files at which ranks of several machines meet."""

from pathlib import Path

import pytest

from graphpod_runtime.base.leader import Leader
from graphpod_runtime.distributed.interface import interface_to
from graphpod_runtime.engine.ranks.meeting import Meeting, ports_of, ranks_of


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
