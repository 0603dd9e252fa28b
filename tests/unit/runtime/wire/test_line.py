"""Frames over a stream socket: whole and in order however they come, and a sender that never waits."""

import socket
import threading
from collections.abc import Iterator

import pytest

from graphpod_runtime.wire.line import LENGTH_BYTES, Line


@pytest.fixture
def pair() -> Iterator[tuple[Line, socket.socket]]:
    """A line, and the bare socket at its other end."""
    one, other = socket.socketpair()
    line = Line(one)
    yield line, other
    line.close()
    other.close()


def bytes_of(frame: bytes) -> bytes:
    return len(frame).to_bytes(LENGTH_BYTES, "little") + frame


def test_a_frame_comes_whole_whatever_pieces_its_bytes_come_in(pair: tuple[Line, socket.socket]) -> None:
    line, other = pair
    frames = [b"", b"a", b"b" * 300]
    taken: list[bytes] = []
    for byte in b"".join(map(bytes_of, frames)):
        other.send(bytes([byte]))
        taken += line.take(10)
    assert taken == frames


def test_no_more_frames_are_taken_than_asked_for(pair: tuple[Line, socket.socket]) -> None:
    line, other = pair
    other.send(b"".join(bytes_of(b"%d" % number) for number in range(5)))
    assert [line.take(2) for _ in range(4)] == [[b"0", b"1"], [b"2", b"3"], [b"4"], []]


def test_sending_to_one_that_does_not_read_never_waits_and_keeps_the_order(pair: tuple[Line, socket.socket]) -> None:
    line, other = pair
    frames = [bytes([number]) * (1 << 16) for number in range(64)]
    for frame in frames:
        line.send(frame)
    assert line.pending
    reader = Line(other)
    taken: list[bytes] = []
    while len(taken) < len(frames):
        line.flush()
        taken += reader.take(100)
    assert taken == frames
    assert not line.pending


def one_taken(end: socket.socket, answer: bytes | None = None) -> tuple[threading.Thread, list[bytes]]:
    """A thread that takes one frame from `end` and then sends the answer; when it has ended the list has the frame."""
    reader, taken = Line(end), list[bytes]()

    def read() -> None:
        while not taken:
            reader.wait(1.0)
            taken.extend(reader.take(1))
        if answer is not None:
            reader.send(answer)

    thread = threading.Thread(target=read)
    thread.start()
    return thread, taken


def test_a_line_that_waits_sends_what_it_has_kept(pair: tuple[Line, socket.socket]) -> None:
    line, other = pair
    frame = b"x" * (4 << 20)
    line.send(frame)
    thread, taken = one_taken(other, b"thanks")
    assert line.wait(60.0)
    thread.join()
    assert (taken, line.take(1)) == ([frame], [b"thanks"])


@pytest.mark.parametrize(("seconds", "milliseconds"), [(0.0, 0), (0.0009, 0), (0.001, 1), (0.0019, 1), (0.5, 500)])
def test_a_line_waits_no_longer_than_asked(
    pair: tuple[Line, socket.socket], monkeypatch: pytest.MonkeyPatch, seconds: float, milliseconds: int
) -> None:
    """`poll` rounds up by itself. A millisecond that is asked for is waited: a wait of none would keep a CPU busy."""
    line, _ = pair
    waited: list[float] = []

    class Poll:
        def modify(self, *_: object) -> None: ...
        def poll(self, timeout: float) -> list[tuple[int, int]]:
            waited.append(timeout)
            return []

    monkeypatch.setattr(line, "_waiting", Poll())
    assert not line.wait(seconds)
    (timeout,) = waited
    assert isinstance(timeout, int)
    assert timeout == milliseconds


def test_a_line_that_closes_waits_for_a_reader_but_not_for_ever(pair: tuple[Line, socket.socket]) -> None:
    line, other = pair
    frame = b"x" * (4 << 20)
    line.send(frame)
    thread, taken = one_taken(other)
    line.close(60.0)
    thread.join()
    assert taken == [frame]
    one, other = socket.socketpair()
    stuck = Line(one)
    stuck.send(frame)
    stuck.close(0.01)
    other.close()


def test_after_the_other_end_has_gone_its_frames_are_taken_and_what_is_sent_is_lost(
    pair: tuple[Line, socket.socket],
) -> None:
    line, other = pair
    other.send(bytes_of(b"last"))
    other.close()
    line.send(b"lost")
    assert line.take(10) == [b"last"]
    line.send(b"lost")
    assert line.ended
    assert not line.pending
    assert line.take(10) == []
    assert not line.wait(0.0)
