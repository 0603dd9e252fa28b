"""The receiving end of the wire: nothing stays unread, and the event loop has its turn between many frames."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphpod_runtime.front.requests.frame_receiver import AT_ONCE, FrameReceiver
from graphpod_runtime.wire.line import Line
from graphpod_runtime.wire.socket import FrontEnd

Ends = tuple[FrontEnd, Line]


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    """Both ends of a wire, whose front has not seen yet that the engine is there."""
    front, engine = FrontEnd(tmp_path, "wire"), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    engine.connect(str(tmp_path / "wire"))
    line = Line(engine)
    yield front, line
    line.close()
    front.close()


async def eventually(count: int, read: list[bytes]) -> None:
    for _ in range(6000):
        if len(read) >= count:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{len(read)} of {count} frames were read")


@pytest.mark.parametrize("sends_first", [False, True])
def test_frames_from_before_and_after_the_reader_are_read_in_order(ends: Ends, sends_first: bool) -> None:
    async def run() -> list[bytes]:
        front, engine = ends
        read: list[bytes] = []
        engine.send(b"0")
        frames = FrameReceiver(front, read.append)
        for number in range(1, 50):
            if number % 7 == sends_first:
                assert front.line is not None
                front.line.send(b"a send may be what finds the engine")
                frames.sent()
            engine.send(b"%d" % number)
            if number % 7 == 0:
                await asyncio.sleep(0)
        await eventually(50, read)
        frames.close()
        return read

    assert asyncio.run(run()) == [b"%d" % number for number in range(50)]


def test_others_have_the_event_loop_between_many_frames(ends: Ends) -> None:
    async def run() -> int:
        front, engine = ends
        read: list[bytes] = []
        for _ in range(10 * AT_ONCE):
            engine.send(b"x")
        frames, turns = FrameReceiver(front, read.append), 0
        while len(read) < 10 * AT_ONCE:
            before = len(read)
            await asyncio.sleep(0)
            # one call from the descriptor and one from itself may fall into the same turn
            assert len(read) - before <= 2 * AT_ONCE
            turns += 1
        frames.close()
        return turns

    assert asyncio.run(run()) >= 5


def test_what_the_kernel_does_not_take_leaves_when_the_other_end_reads(ends: Ends) -> None:
    async def run() -> None:
        front, engine = ends
        frames = FrameReceiver(front, lambda frame: None)
        sent = [bytes([number]) * (1 << 20) for number in range(4)]
        assert front.line is not None
        for frame in sent:
            front.line.send(frame)
            frames.sent()
        assert front.line.pending
        read: list[bytes] = []
        for _ in range(6000):
            read += engine.take(10)
            if len(read) == len(sent):
                break
            await asyncio.sleep(0.001)
        assert read == sent
        assert not front.line.pending
        frames.close()

    asyncio.run(run())


def test_an_end_that_has_gone_is_read_to_its_last_frame_and_then_left_alone(ends: Ends) -> None:
    async def run() -> None:
        front, engine = ends
        read: list[bytes] = []
        frames = FrameReceiver(front, read.append)
        for number in range(3 * AT_ONCE):
            engine.send(b"%d" % number)
        engine.close()
        await eventually(3 * AT_ONCE, read)
        for _ in range(10):
            await asyncio.sleep(0)
        assert front.line is not None
        assert front.line.ended
        assert not asyncio.get_running_loop().remove_reader(front.line.fileno())  # or the loop would never sleep
        frames.close()

    asyncio.run(run())


def test_a_frame_that_cannot_be_read_is_the_last_one(ends: Ends) -> None:
    async def run() -> None:
        front, engine = ends
        read: list[int] = []
        frames = FrameReceiver(front, lambda frame: read.append(int(frame)))
        for frame in (b"1", b"none", b"2"):
            engine.send(frame)
        with pytest.raises(ValueError, match="none"):
            await asyncio.wait_for(frames.failed, 30)
        frames.sent()  # as a send on the same socket does
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert read == [1]
        frames.close()

    asyncio.run(run())
