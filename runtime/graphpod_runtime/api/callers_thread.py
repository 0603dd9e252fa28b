"""The engine in its caller's thread: no thread, no event loop. It runs while somebody waits for an answer.

Each prompt is a coroutine that waits for one thing only: what the engine sends for it. So a pass is one turn of the
engine's loop, after which the coroutines run on whose tokens have come.
"""

import contextlib
import threading
import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import ParamSpec, TypeVar

from graphpod_runtime.api.errors import EngineFailed
from graphpod_runtime.engine.loop import Loop, Runner
from graphpod_runtime.front.requests.engine_stream import Arrived, EngineStream
from graphpod_runtime.front.requests.open_requests import OpenRequests
from graphpod_runtime.wire.messages import Command, Event, Finished, Tokens

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Work = Coroutine["TurnedStream", None, None]

TURNS = threading.RLock()
"""Engines of one process take turns: a capture must not meet the kernels of another engine, and a caller's threads not
each other within a pass.
"""


class Abandoned(BaseException):
    """The caller waits for this answer no more."""


@types.coroutine
def _until_arrived(stream: "TurnedStream") -> Generator["TurnedStream", None, None]:
    yield stream


class TurnedStream(EngineStream):
    """Of one prompt. Once somebody waits, `ready` gets it when something has come."""

    def __init__(self, abort: Callable[[int], None], overrun: Callable[[], None]) -> None:
        super().__init__(abort, overrun)
        self.ready: list[TurnedStream] | None = None

    async def next(self) -> dict[int, Arrived]:
        if not self._arrived:
            await _until_arrived(self)
        return await super().next()

    def put(self, index: int, event: Tokens | Finished) -> None:
        super().put(index, event)
        if self.ready is not None:
            self.ready.append(self)
            self.ready = None


class TurnedEngine(OpenRequests):
    """The requests of one runner that is Ready, its loop, and the link between the two."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self._commands: list[Command] = []
        self._loop = Loop(runner, self, beat=lambda: None)

    def poll(self, seconds: float) -> list[Command]:
        """What the loop is to do. Whoever calls `turn` has more to do than to wait."""
        commands, self._commands = self._commands, []
        return commands

    def send(self, events: list[Event]) -> None:
        """What the loop has done. Counters are read where they are counted."""
        for event in events:
            if isinstance(event, Tokens | Finished):
                self._arrived(event)

    def run(self, works: Sequence[Work]) -> Generator[None, None, None]:
        """Runs `works` to their end, each of which awaits streams of this engine only; yields after each pass. Closing
        it closes them, which aborts their requests. EngineFailed after an error of the device.
        """
        waiting: dict[TurnedStream, Work] = {}
        ready: list[TurnedStream] = []

        def step(work: Work) -> None:
            with contextlib.suppress(StopIteration):
                stream = work.send(None)
                waiting[stream], stream.ready = work, ready

        try:
            with TURNS:
                for work in works:
                    step(work)
            while waiting:
                with TURNS:
                    if not ready:
                        self._turn()
                    come, ready[:] = list(ready), []
                    for stream in come:
                        step(waiting.pop(stream))
                yield
        finally:
            with TURNS:
                for work in waiting.values():
                    with contextlib.suppress(Abandoned, StopIteration):
                        work.throw(Abandoned())  # `close` would not reach the generators that it waits in
                for work in works:
                    work.close()
                self._settle()

    async def off_loop(
        self, work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        return work(*arguments, **named)

    def _stream(self, abort: Callable[[int], None], overrun: Callable[[], None]) -> EngineStream:
        return TurnedStream(abort, overrun)

    def _send(self, commands: list[Command]) -> None:
        self._commands += commands

    def _turn(self) -> None:
        if self._closed is not None:
            raise EngineFailed(self._closed)
        try:
            self._loop.turn()
        except BaseException as error:
            # Half a pass: neither the device's state nor the scheduler's is known.
            said = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else type(error).__name__
            self.fail_all(f"the engine failed in a pass ({said}); make a new Engine")
            if isinstance(error, Exception):
                raise EngineFailed(self._closed) from error
            raise

    def _settle(self) -> None:
        """Aborts are obeyed, and pages of what has ended in flight go back, unless other requests see to it."""
        while self._closed is None and not self.open and (self._commands or self._loop.busy):
            self._turn()
