"""What one driver process notices of itself, and how many of them there are."""

import asyncio
import time
from contextlib import suppress

import pytest

from graphpod_runtime.bench.serve.drive.driver import BEAT_SECONDS, _beat
from graphpod_runtime.bench.serve.drive.drivers import processes_of
from graphpod_runtime.bench.serve.load.arrivals import Closed, Loop, Open
from graphpod_runtime.bench.serve.load.length import length_of
from graphpod_runtime.bench.serve.load.load import Load


async def test_an_event_loop_that_was_held_up_is_late_by_as_much() -> None:
    lags: list[float] = []
    beating = asyncio.create_task(_beat(lags))
    await asyncio.sleep(0)
    time.sleep(10 * BEAT_SECONDS)  # noqa: ASYNC251 (holds up the loop)
    await asyncio.sleep(3 * BEAT_SECONDS)
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating
    assert lags[0] > 8 * BEAT_SECONDS


@pytest.mark.parametrize(
    ("asked", "cores", "loop", "conversations", "expected"),
    [
        (None, 16, Closed(32), 100, 4),
        (None, 2, Closed(32), 100, 1),
        (8, 2, Closed(32), 100, 8),
        (8, 16, Closed(3), 100, 3),
        (8, 16, Open(5), 100, 8),
        (8, 16, Open(5), 2, 2),
    ],
)
def test_drivers_are_as_many_as_the_cores_or_the_user_say_and_the_load_can_use(
    asked: int | None, cores: int, loop: Loop, conversations: int, expected: int
) -> None:
    one = length_of("1")
    load = Load(loop=loop, conversations=conversations, input=one, output=one)
    assert processes_of(asked, cores, [load]) == expected
