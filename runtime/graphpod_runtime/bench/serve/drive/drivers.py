"""All driver processes of one row, from the side of the command."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, TypeVar

from graphpod_runtime.base.process.command import MODULE
from graphpod_runtime.bench.serve.drive import messages
from graphpod_runtime.bench.serve.drive.messages import Ended, Finished, Go, Order, Ready, Said, Stop, Target, Tick
from graphpod_runtime.bench.serve.figures.record import Record
from graphpod_runtime.bench.serve.figures.report import Drivers
from graphpod_runtime.bench.serve.load.arrivals import Closed
from graphpod_runtime.bench.serve.load.load import Load

T = TypeVar("T", bound=Said)

HEAD_START = 0.1
"""Seconds from the order to begin until the load begins, so that no driver is late."""
LONGEST_LINE = 1 << 31
"""Bytes of all records of one driver."""
LAST_LINES = 8
CORES_EACH = 4
"""Cores for one driver by default: the rest are the server's, if it is on this machine."""

OnTick = Callable[[Tick], None]
"""Gets the sum over all drivers."""


class DriverFailed(Exception):
    """A driver process ended early; the message has its last words."""


def processes_of(asked: int | None, cores: int, loads: Sequence[Load]) -> int:
    """How many drivers: as asked, or by the cores; never more than there are requests at a time, or at all."""
    widest = max(
        min(load.conversations or sys.maxsize, load.loop.width if isinstance(load.loop, Closed) else sys.maxsize)
        for load in loads
    )
    return max(1, min(asked or cores // CORES_EACH, widest))


async def run(
    target: Target, loads: Sequence[Load], processes: int, on_tick: OnTick
) -> tuple[list[list[Record]], Drivers]:
    """Runs the loads at the same time until those with an end have ended. Returns the records of each load, and what
    the drivers used. DriverFailed when one of them dies.
    """
    fleet = [Driver(Order(target, tuple(loads), number, processes)) for number in range(processes)]

    def summed() -> None:
        ticks = [driver.tick for driver in fleet]
        columns = zip(*((tick.sent, tick.ended, tick.failed, tick.pieces) for tick in ticks), strict=True)
        on_tick(Tick(*map(sum, columns)))

    try:
        await asyncio.gather(*(driver.start() for driver in fleet))
        await asyncio.gather(*(driver.answer(Ready) for driver in fleet))
        go = Go(time.monotonic() + HEAD_START)
        for driver in fleet:
            driver.send(go)
        await asyncio.gather(*(driver.answer(Ended, summed) for driver in fleet))
        for driver in fleet:
            driver.send(Stop())
        ends = await asyncio.gather(*(driver.answer(Finished, summed) for driver in fleet))
    finally:
        for driver in fleet:
            await driver.close()
    records = [[record for end in ends for record in end.records[at]] for at in range(len(loads))]
    busy = [end.busy for end in ends]
    return records, Drivers(processes, max(busy), sum(busy) / len(busy), max(end.lag for end in ends))


class Driver:
    """One of them."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in close)
        self._process: asyncio.subprocess.Process | None = None
        self.tick = Tick(0, 0, 0, 0)

    async def start(self) -> None:
        """Starts the process and gives it its order."""
        self._process = await asyncio.create_subprocess_exec(
            *MODULE,
            "graphpod_runtime.bench.serve.drive.driver",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            limit=LONGEST_LINE,
        )
        self.send(self._order)

    def send(self, message: messages.Command | Order) -> None:
        """One line to the process. A process that is gone is found by its missing answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(messages.line(message))

    async def answer(self, kind: type[T], on_tick: Callable[[], None] | None = None) -> T:
        """The next message that is no Tick. DriverFailed when there is none."""
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = messages.said(line)
            if isinstance(message, Tick):
                self.tick = message
                if on_tick is not None:
                    on_tick()
            elif isinstance(message, kind):
                return message
            else:
                raise DriverFailed(f"driver {self._order.number} said {type(message).__name__}, not {kind.__name__}")
        code = await self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().splitlines()[-LAST_LINES:]
        raise DriverFailed("\n".join([f"driver {self._order.number} ended with code {code}", *last]))

    async def close(self) -> None:
        """Ends the process if it has not ended."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
        self._errors.close()
