"""The receiving end of the wire: nothing stays unread, and the event loop has its turn between many frames."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from graphpod_runtime.front.requests.frame_receiver import AT_ONCE, FrameReceiver
from graphpod_runtime.wire.socket import unbounded


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple["zmq.Socket[bytes]", "zmq.Socket[bytes]"]]:
    """Both ends of a wire."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    ends = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    for end in ends:
        unbounded(end)
    ends[0].bind(f"ipc://{tmp_path}/wire")
    ends[1].connect(f"ipc://{tmp_path}/wire")
    yield ends
    context.destroy(linger=0)


async def eventually(count: int, read: list[bytes]) -> None:
    for _ in range(6000):
        if len(read) >= count:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{len(read)} of {count} frames were read")


def test_frames_from_before_and_after_the_reader_are_read_in_order(
    pair: tuple["zmq.Socket[bytes]", "zmq.Socket[bytes]"],
) -> None:
    async def run() -> list[bytes]:
        front, engine = pair
        read: list[bytes] = []
        engine.send(b"0")
        assert front.poll(30_000)
        frames = FrameReceiver(front, read.append)
        for number in range(1, 50):
            engine.send(b"%d" % number)
            if number % 7 == 0:
                front.send(b"a send may swallow the announcement of a frame")
                frames.look()
                await asyncio.sleep(0)
        await eventually(50, read)
        frames.close()
        return read

    assert asyncio.run(run()) == [b"%d" % number for number in range(50)]


def test_others_have_the_event_loop_between_many_frames(pair: tuple["zmq.Socket[bytes]", "zmq.Socket[bytes]"]) -> None:
    async def run() -> int:
        front, engine = pair
        read: list[bytes] = []
        for _ in range(10 * AT_ONCE):
            engine.send(b"x")
        assert front.poll(30_000)
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


def test_a_frame_that_cannot_be_read_is_the_last_one(pair: tuple["zmq.Socket[bytes]", "zmq.Socket[bytes]"]) -> None:
    async def run() -> None:
        front, engine = pair
        read: list[int] = []
        frames = FrameReceiver(front, lambda frame: read.append(int(frame)))
        for frame in (b"1", b"none", b"2"):
            engine.send(frame)
        with pytest.raises(ValueError, match="none"):
            await asyncio.wait_for(frames.failed, 30)
        frames.look()  # as a send on the same socket does
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert read == [1]
        frames.close()

    asyncio.run(run())
