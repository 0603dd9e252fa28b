"""The front's side of the engine: the process, and the wire to it."""

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from graphpod_policy import ExitCode
from graphpod_runtime.base.process.command import MODULE
from graphpod_runtime.front.requests.frame_receiver import FrameReceiver
from graphpod_runtime.front.requests.open_requests import OpenRequests
from graphpod_runtime.front.requests.termination import Ending
from graphpod_runtime.wire.messages import (
    CRASHES,
    Arriving,
    Command,
    Drain,
    Event,
    Fatal,
    Finished,
    Tokens,
    decode_events,
    encode,
)
from graphpod_runtime.wire.socket import BEAT, WIRE, FrontEnd, require_room

log = logging.getLogger("graphpod.front")

ENGINE_COMMAND = (*MODULE, "graphpod_runtime.engine.process")


class EngineClient(OpenRequests):
    """One engine process. `on_event` gets what belongs to no request: Warmup, Counters, Heartbeat."""

    def __init__(
        self,
        on_event: Callable[[Event], None],
        command: Sequence[str] = ENGINE_COMMAND,
        ranks: int = 1,
        awake: float = 0.0,
    ) -> None:
        """`ranks`: of its engine, whose first one it is; `awake`: seconds that the engine's loop looks for requests
        before it sleeps, 0 where it sleeps at once. OSError where no socket can be in a temporary folder."""
        super().__init__()
        self._ranks, self._awake = ranks, awake
        self._on_event = on_event
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="graphpod-")
        self._fatal: Fatal | None = None
        self._drained = False
        self._process: asyncio.subprocess.Process | None = None
        self._frames: FrameReceiver | None = None
        folder = Path(self._folder.name)
        require_room(folder)
        self._wire, self._beat = FrontEnd(folder, WIRE), FrontEnd(folder, BEAT)

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
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            # What an engine has sent is here, even if it has gone.
            self._frames.read_all()
            beats.read_all()
            unread = self._frames.error or beats.error
        finally:
            exited.cancel()
            self._frames.close()
            beats.close()
            self.kill()
            code = await self._process.wait()
            self._kill_ranks()
        ending = self._ending(code, unread)
        self.fail_all(ending.line)
        return ending

    def drain(self, seconds: float = 0.0) -> None:
        """The engine ends once its requests have ended, and after so many seconds for what it keeps in files."""
        self._drained = True
        self._send([Drain(seconds)])

    def arriving(self) -> None:
        """A request is being received: an engine that sleeps wakes up while this process reads it."""
        if self._awake and not self.open and (now := time.monotonic()) - self._quiet_since > self._awake:
            self._quiet_since = now  # it is awake from now on, and one of several requests is enough
            self._send([Arriving()])

    def send(self, command: Command) -> None:
        """A command that belongs to no request."""
        self._send([command])

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends the process; SIGABRT makes it print every stack first."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(how)

    def _kill_ranks(self) -> None:
        """Ends what the engine has left behind: other ranks go with it, but one that is stopped runs nothing, and keeps
        its GPU's memory."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Gives up sockets and folder."""
        self._wire.close()
        self._beat.close()
        self._folder.cleanup()

    def _send(self, commands: list[Command]) -> None:
        frame, line = encode(commands), self._wire.line
        if line is not None:
            line.send(frame)
        if line is None or line.ended:
            # Its end ends every request.
            log.warning("the engine has gone: %s was not sent", ", ".join(type(one).__name__ for one in commands))
        elif self._frames is not None:
            self._frames.sent()

    def _read(self, frame: bytes) -> None:
        for event in decode_events(frame):
            self._dispatch(event)

    def _dispatch(self, event: Event) -> None:
        match event:
            case Tokens() | Finished():
                self._arrived(event)
            case Fatal():
                self._fatal = event
            case _:
                self._on_event(event)

    def _ending(self, code: int, unread: BaseException | None) -> Ending:
        """`unread`: what a message was that could not be read; the exit code is ours then."""
        if unread is not None:
            log.error("a message of the engine process %d cannot be read", self.pid, exc_info=unread)
        if self._fatal is not None:
            return Ending(ExitCode(self._fatal.code), self._fatal.message, self._fatal.crashed)
        if unread is not None:
            what = f"a message of the engine process {self.pid} cannot be read: {type(unread).__name__}: {unread}"
            return Ending(ExitCode.EngineDied, f"{what}; its traceback is in the log above")
        if code == ExitCode.Drained and self._drained:
            return Ending(ExitCode.Drained, "the engine has drained")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        oom = "; the kernel kills like this when memory runs out: raise the memory limit" if code == -9 else ""
        cause, who = ExitCode.EngineDied, f"the engine process {self.pid}"
        if self._ranks > 1:
            cause, who = ExitCode.RankDied, f"rank 0 of {self._ranks}, {who},"
        return Ending(cause, f"{who} ended by {how} without a word{oom}; see its log above", crashed=-code in CRASHES)
