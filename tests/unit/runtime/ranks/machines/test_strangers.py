"""Whoever else connects to the ports of an engine of several machines: it is shown out, and keeps no machine out."""

import json
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

import pytest
import zmq

from graphpod_policy import EngineConfig
from graphpod_runtime.engine.ranks.callers import MOST_CALLERS, MOST_OF_ADDRESS, Callers
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import Copied, LastWords, encode
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.ranks.rank_sockets import MOST_NOTICES, FirstEnds
from graphpod_runtime.engine.ranks.roster import LINE_BYTES, Ended, Line, Roster
from graphpod_runtime.engine.ranks.worker import joined
from graphpod_runtime.wire.messages import Fatal
from tests.eventually import Eventually
from tests.unit.runtime.ranks.machines.conftest import Worker, addresses, eventually_in_trouble


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
        assert eventually_in_trouble(others).message == "rank 1 (stage 2 of 2): its own"
    others.abandon()
    worker.thread.join(60)
    others.close()


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
            machine.say(Ended(1, 0))


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
