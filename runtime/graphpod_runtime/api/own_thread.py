"""The engine in a thread of its own, for callers with an event loop.

The thread starts the runner and serves its loop. Commands reach it through a queue; events come back as calls on the
caller's event loop. When that event loop has closed, or the program ends, the thread ends by itself.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable

from graphpod_runtime.engine.loop import Loop, Runner
from graphpod_runtime.front.requests.open_requests import OpenRequests
from graphpod_runtime.wire.messages import Command, Drain, Event, Finished, Tokens


class CallerGone(Exception):
    """The caller can take no answer any more."""


class ThreadEngine(OpenRequests):
    """The requests of one runner, on the event loop that this is made on; its thread is started by `start`."""

    def __init__(self, make_runner: Callable[[], Runner], left: Callable[[], None]) -> None:
        """`make_runner` is called in the thread and returns a runner that is Ready; `left` is called there last."""
        super().__init__()
        self._make_runner, self._left = make_runner, left
        self._caller = asyncio.get_running_loop()
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._given_up = False
        self.runner: Runner | None = None
        """Once it is Ready."""
        self.loop: Loop | None = None
        self.ready: asyncio.Future[None] = self._caller.create_future()
        """Has what a start raises."""
        self.ended: asyncio.Future[None] = self._caller.create_future()
        """The thread has left the runner."""
        self.thread = threading.Thread(target=self._serve, name="graphpod engine", daemon=False)

    def start(self) -> None:
        """Starts the thread."""
        self.thread.start()

    def drain(self) -> None:
        """The thread ends once its requests have ended."""
        self._send([Drain()])

    def give_up(self) -> None:
        """The thread ends after the pass, or the start, that it is in. Safe to call from any thread."""
        self._given_up = True

    def poll(self, seconds: float) -> list[Command]:
        """For the loop: what has come; waits up to `seconds` for the first. CallerGone ends the loop."""
        if self._given_up or self._caller.is_closed() or not threading.main_thread().is_alive():
            raise CallerGone
        commands: list[Command] = []
        with contextlib.suppress(queue.Empty):
            commands.append(self._commands.get(timeout=seconds) if seconds else self._commands.get_nowait())
            while True:
                commands.append(self._commands.get_nowait())
        return commands

    def send(self, events: list[Event]) -> None:
        """For the loop: what it has done. Counters are read where they are counted."""
        if own := [event for event in events if isinstance(event, Tokens | Finished)]:
            self._call(self._take, own)

    def _take(self, events: list[Tokens | Finished]) -> None:
        for event in events:
            self._arrived(event)

    def _send(self, commands: list[Command]) -> None:
        for command in commands:
            self._commands.put(command)

    def _serve(self) -> None:
        """The thread."""
        try:
            try:
                self.runner = self._make_runner()
                self.loop = Loop(self.runner, self, beat=lambda: None)
            except BaseException as error:  # noqa: BLE001  whoever waits for `ready` raises it
                self._left()  # first: the caller may start another engine at once
                self._call(_fail, self.ready, error)
                return
            self._call(_finish, self.ready)
            self.loop.run()
        except CallerGone:
            pass
        except Exception as error:  # noqa: BLE001  every request that is open or will be ends with it
            message = f"the engine failed ({type(error).__name__}: {error}); make a new AsyncEngine"
            with contextlib.suppress(CallerGone):
                self._call(self.fail_all, message)
        finally:
            if self.runner is not None:
                from graphpod_runtime.engine.ranks.start import release

                release(self.runner)
            self.runner = self.loop = None
            self._left()
            with contextlib.suppress(CallerGone):
                self._call(_finish, self.ended)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Calls on the caller's event loop, soon."""
        try:
            self._caller.call_soon_threadsafe(function, *arguments)
        except RuntimeError as error:  # the event loop is closed
            raise CallerGone from error


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: "asyncio.Future[None]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
