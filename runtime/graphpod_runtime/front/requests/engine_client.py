"""The front's side of the engine: the process, and the wire to it."""

import asyncio
import contextlib
import itertools
import logging
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import zmq

from graphpod_policy import ExitCode
from graphpod_runtime.front.requests.engine_stream import EngineStream
from graphpod_runtime.front.requests.frame_receiver import FrameReceiver
from graphpod_runtime.front.requests.termination import Ending
from graphpod_runtime.wire.messages import (
    Abort,
    Command,
    Drain,
    Event,
    Fatal,
    Finished,
    FinishReason,
    Submit,
    Tokens,
    decode_events,
    encode,
)
from graphpod_runtime.wire.socket import BEAT, WIRE, address, unbounded

log = logging.getLogger("graphpod.front")

ENGINE_COMMAND = (sys.executable, "-m", "graphpod_runtime.engine.process")

LAST_WORDS_SECONDS = 0.3
"""After the process has gone, frames that it left in the socket arrive within this."""

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP)
"""What a process does to itself. SIGKILL and SIGTERM come from somebody else, the kernel short of memory for one."""


class EngineClient:
    """One engine process. `on_event` gets what belongs to no request: Warmup, Counters, Heartbeat."""

    def __init__(self, on_event: Callable[[Event], None], command: Sequence[str] = ENGINE_COMMAND) -> None:
        self._on_event = on_event
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="graphpod-")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._streams: dict[str, tuple[EngineStream, int]] = {}
        self._numbers = itertools.count()
        self._fatal: Fatal | None = None
        self._drained = False
        self._closed: str | None = None
        """Why no request is taken any more."""
        self._process: asyncio.subprocess.Process | None = None
        self._frames: FrameReceiver | None = None
        folder = Path(self._folder.name)
        self._wire = self._bind(folder, WIRE)
        self._beat = self._bind(folder, BEAT)

    @property
    def open(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    @property
    def pid(self) -> int:
        """The engine process."""
        assert self._process is not None, "the engine has not been started"
        return self._process.pid

    async def run(self, config_path: Path) -> Ending:
        """Starts the engine, serves its wire, and returns why it ended; every open request has then ended too."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, "--config", str(config_path), "--wire", self._folder.name,
            stdin=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._frames = FrameReceiver(self._wire, self._read)
        beats = FrameReceiver(self._beat, self._read)
        exited = asyncio.create_task(self._process.wait())
        try:
            # Unread frames would leave every request waiting for ever.
            ends: list[asyncio.Future[Any]] = [exited, self._frames.failed, beats.failed]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            code = done.pop().result()
            await asyncio.sleep(LAST_WORDS_SECONDS)
            self._frames.read_all()
        finally:
            exited.cancel()
            self._frames.close()
            beats.close()
            self.kill()
            await self._process.wait()
        ending = self._ending(code)
        self.fail_all(ending.line)
        return ending

    @contextlib.contextmanager
    def submit(
        self, requests: Sequence[Callable[[str], Submit]], overrun: Callable[[], None] = lambda: None
    ) -> Iterator[EngineStream]:
        """Opens a group of requests, each made from its id; what has not ended on leaving is aborted. After
        `fail_all` requests end at once: one may have been with the tokenizer at that moment. `overrun` goes to the
        stream.
        """
        ids = [f"r{next(self._numbers)}" for _ in requests]
        stream = EngineStream(lambda index: self._abort(ids[index]), overrun)
        try:
            for index, (id, request) in enumerate(zip(ids, requests, strict=True)):
                if self._closed is not None:
                    stream.put(index, Finished(id, FinishReason.Error, self._closed))
                    continue
                self._streams[id] = (stream, index)
                self._send([request(id)])
            yield stream
        finally:
            for id in ids:
                self._abort(id)

    def drain(self) -> None:
        """The engine ends once its requests have ended."""
        self._drained = True
        self._send([Drain()])

    def abort_all(self, message: str) -> None:
        """Ends every request, open or to come, with an error and frees it in the engine."""
        ids = list(self._streams)
        self.fail_all(message)
        self._send([Abort(id) for id in ids])

    def fail_all(self, message: str) -> None:
        """Ends every request, open or to come, with an error, here only."""
        self._closed = message
        for id, (stream, index) in list(self._streams.items()):
            stream.put(index, Finished(id, FinishReason.Error, message))
        self._streams.clear()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends the process; SIGABRT makes it print every stack first."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(how)

    def close(self) -> None:
        """Gives up sockets and folder."""
        self._context.destroy(linger=0)
        self._folder.cleanup()

    def _abort(self, id: str) -> None:
        if self._streams.pop(id, None) is not None:
            self._send([Abort(id)])

    def _bind(self, folder: Path, name: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.PAIR)
        unbounded(socket)
        socket.bind(address(folder, name))
        return socket

    def _send(self, commands: list[Command]) -> None:
        try:
            self._wire.send(encode(commands), zmq.NOBLOCK)
        except zmq.Again:
            # Without a limit on the queue only a missing engine refuses a frame; its end ends every request.
            log.warning("the engine has gone: %s was not sent", ", ".join(type(one).__name__ for one in commands))
        if self._frames is not None:
            self._frames.look()

    def _read(self, frame: bytes) -> None:
        for event in decode_events(frame):
            self._dispatch(event)

    def _dispatch(self, event: Event) -> None:
        match event:
            case Tokens():
                # An event of an aborted request may still be on its way.
                if (found := self._streams.get(event.id)) is not None:
                    found[0].put(found[1], event)
            case Finished():
                if (found := self._streams.pop(event.id, None)) is not None:
                    found[0].put(found[1], event)
            case Fatal():
                self._fatal = event
            case _:
                self._on_event(event)

    def _ending(self, code: int) -> Ending:
        if self._fatal is not None:
            return Ending(ExitCode(self._fatal.code), self._fatal.message)
        if code == ExitCode.Drained and self._drained:
            return Ending(ExitCode.Drained, "the engine has drained")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        oom = "; the kernel kills like this when memory runs out: raise the memory limit" if code == -9 else ""
        return Ending(
            ExitCode.EngineDied,
            f"the engine process {self.pid} ended by {how} without a word{oom}; see its log above",
            crashed=-code in CRASHES,
        )
