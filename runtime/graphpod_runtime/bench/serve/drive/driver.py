"""One driver process: its share of the requests, on an event loop of its own.

Reads an Order, makes its prompts, says Ready and waits for Go, so that nothing is computed while the load runs but
what clients do. Ends after it has said Finished.
"""

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import msgspec
import uvloop

from graphpod_runtime.bench.serve.drive import messages
from graphpod_runtime.bench.serve.drive.client import Answer, Ask, Client
from graphpod_runtime.bench.serve.drive.connection import Connections
from graphpod_runtime.bench.serve.drive.messages import Ended, Finished, Go, Order, Ready, Said, Stop, Tick
from graphpod_runtime.bench.serve.figures.record import Outcome, Record
from graphpod_runtime.bench.serve.figures.spread import spread
from graphpod_runtime.bench.serve.load.arrivals import Closed, Open, driver_of, schedule
from graphpod_runtime.bench.serve.load.load import Load
from graphpod_runtime.bench.serve.load.requests import Conversation, body, conversation

TICK_SECONDS = 0.25
BEAT_SECONDS = 0.01
"""How often the event loop is asked whether it is on time."""
LONGEST_LINE = 1 << 24
"""Bytes of an order."""


class Prepared(NamedTuple):
    """A conversation before it begins: its first body, and of each turn the tokens asked for and where it is left.
    `talk` is None where there is no second turn: a body needs a tenth of its token ids' memory.
    """

    body: bytes
    asked: tuple[int, ...]
    cancel_after: tuple[int | None, ...]
    talk: Conversation | None


class Share:
    """The part of one load that one driver sends, and what came of it."""

    def __init__(self, load: Load, order: Order, client: Client) -> None:
        self._load = load
        self._order = order
        self._client = client
        self._stop = asyncio.Event()
        self._prepared = {} if self.endless else {number: self._prepare(number) for number in self._numbers()}
        self.records: list[Record] = []
        self.sent = 0
        self.pieces = 0
        self.failed = 0

    @property
    def endless(self) -> bool:
        """Whether it runs until it is stopped."""
        return self._load.conversations is None

    def stop(self) -> None:
        """Sends nothing more; what is in flight ends as it does."""
        self._stop.set()

    async def run(self, go: float) -> None:
        """From `go` to the end of the last request."""
        await asyncio.sleep(max(0.0, go - time.monotonic()))
        match self._load.loop:
            case Closed() as loop:
                numbers = self._numbers()
                width = loop.share(self._order.number, self._order.processes)
                await asyncio.gather(*(self._one_after_another(numbers, go) for _ in range(width)))
            case Open() as loop:
                await self._as_scheduled(loop, go)

    def _numbers(self) -> Iterator[int]:
        """Of own conversations, ascending."""
        load, order = self._load, self._order
        for number in count() if load.conversations is None else range(load.conversations):
            if driver_of(load.loop, number, order.processes) == order.number:
                yield number

    async def _one_after_another(self, numbers: Iterator[int], go: float) -> None:
        for number in numbers:
            if self._stop.is_set():
                return
            await self._talk(number, None, go)

    async def _as_scheduled(self, loop: Open, go: float) -> None:
        """Requests are sent when they are due, whatever became of those before."""
        talks = []
        numbers = self._numbers()
        wanted = next(numbers, None)
        for number, at in enumerate(schedule(loop, self._load.seed)):
            if wanted is None:
                break
            if number != wanted:
                continue
            self._prepared[number] = self._prepared.get(number) or self._prepare(number)
            try:
                async with asyncio.timeout(max(0.0, go + at - time.monotonic())):
                    await self._stop.wait()
                break
            except TimeoutError:
                talks.append(asyncio.create_task(self._talk(number, go + at, go)))
            wanted = next(numbers, None)
        await asyncio.gather(*talks)

    def _prepare(self, number: int) -> Prepared:
        load, talk = self._load, conversation(self._load, number)
        return Prepared(
            body=self._body(talk, []),
            asked=tuple(turn.output for turn in talk.turns),
            cancel_after=tuple(turn.cancel_after for turn in talk.turns),
            talk=talk if load.turns > 1 else None,
        )

    def _body(self, talk: Conversation, answers: list[str]) -> bytes:
        return msgspec.json.encode(body(self._load, self._order.target.model, talk, answers))

    async def _talk(self, number: int, due: float | None, go: float) -> None:
        """One conversation; it ends early with a turn that was not completed."""
        prepared = self._prepared.pop(number, None) or self._prepare(number)
        answers: list[str] = []
        for turn, (asked, cancel_after) in enumerate(zip(prepared.asked, prepared.cancel_after, strict=True)):
            data = prepared.body if prepared.talk is None or not answers else self._body(prepared.talk, answers)
            self.sent += 1
            answer = Answer()
            await self._client.ask(Ask(self._load.api.path, data, cancel_after), answer)
            self.pieces += len(answer.stamps)
            self.failed += answer.outcome is Outcome.Failed
            self.records.append(_record(number, turn, asked, due if turn == 0 else None, answer, go))
            if answer.outcome is not Outcome.Completed:
                return
            answers.append(answer.text)


def _record(number: int, turn: int, asked: int, due: float | None, answer: Answer, go: float) -> Record:
    return Record(
        number=number,
        turn=turn,
        asked=asked,
        due=(answer.sent if due is None else due) - go,
        sent=answer.sent - go,
        end=answer.end - go,
        stamps=[stamp - go for stamp in answer.stamps],
        last=answer.last - go,
        outcome=answer.outcome,
        error=answer.error,
        message=answer.message,
        input_tokens=answer.usage.prompt_tokens if answer.usage else None,
        output_tokens=answer.usage.completion_tokens if answer.usage else None,
        cached_tokens=answer.cached_tokens,
    )


async def drive(order: Order, commands: asyncio.StreamReader) -> None:
    """All of it, from making prompts to Finished."""
    with contextlib.closing(Connections(order.target)) as connections:
        shares = [Share(load, order, Client(connections, order.target)) for load in order.loads]
        gc.collect()
        gc.freeze()  # prompts stay; looking at them again and again would be pauses
        _say(Ready())
        go = messages.command(await commands.readline())
        assert isinstance(go, Go), go
        began, used = time.monotonic(), time.process_time()
        runs = {share: asyncio.create_task(share.run(go.at)) for share in shares}
        lags: list[float] = []
        watching = [asyncio.create_task(_tick(shares)), asyncio.create_task(_beat(lags))]
        await asyncio.gather(*(run for share, run in runs.items() if not share.endless))
        _say(Ended())
        assert isinstance(messages.command(await commands.readline()), Stop)
        for share in shares:
            share.stop()
        await asyncio.gather(*runs.values())
        for task in watching:
            task.cancel()
        busy = (time.process_time() - used) / (time.monotonic() - began)
    lag = spread(lags)
    _say(Finished(tuple(tuple(share.records) for share in shares), busy, lag.p99 if lag else 0.0))


async def _beat(lags: list[float]) -> None:
    """Adds by how much the loop woke up late: as late are the times of pieces."""
    while True:
        due = time.monotonic() + BEAT_SECONDS
        await asyncio.sleep(BEAT_SECONDS)
        lags.append(max(0.0, time.monotonic() - due))


async def _tick(shares: list[Share]) -> None:
    """Requests of the loads that have an end; failures and pieces of all."""
    counted = [share for share in shares if not share.endless]
    while True:
        await asyncio.sleep(TICK_SECONDS)
        sent, ended = sum(share.sent for share in counted), sum(len(share.records) for share in counted)
        failed, pieces = sum(share.failed for share in shares), sum(share.pieces for share in shares)
        _say(Tick(sent, ended, failed, pieces))


def _say(message: Said) -> None:
    sys.stdout.buffer.write(messages.line(message))
    sys.stdout.buffer.flush()


async def _main() -> None:
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await drive(messages.order(await reader.readline()), reader)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main())
