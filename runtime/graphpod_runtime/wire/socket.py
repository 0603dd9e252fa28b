"""The two Unix sockets between front and engine process, and both ends of each.

One carries commands down and events up; a second one carries heartbeats, because a line belongs to one thread and the
heart beats in its own. The front listens on both as files in a private folder, the engine connects. Each end reads in
the thread that needs the frames: a frame wakes one thread, not three as with a library that has threads of its own.
"""

import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from graphpod_runtime.wire.line import Line
from graphpod_runtime.wire.messages import Command, Event, decode_commands, encode

WIRE = "wire"

BEAT = "beat"

SEND_LIMIT_SECONDS = 2.0
"""A closing engine waits so long for its last frame to leave."""
AT_ONCE = 1024
"""Frames of commands that are read together."""
PATH_BYTES = 107
LONGEST_NAME = "rank-1000000"
"""Of a socket in an engine's folder, where its ranks meet, too."""


def require_room(folder: Path) -> None:
    """OSError where the path of `folder` leaves no room for the names of sockets in it."""
    if len(os.fsencode(folder / LONGEST_NAME)) > PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "the path is too long for sockets", str(folder))


def no_sockets(error: OSError) -> str:
    """What a temporary folder that cannot have sockets is refused with."""
    what = f"no sockets in {error.filename or 'a temporary folder'}: {error.strerror}"
    return f"{what}; set TMPDIR to a folder that can be written, with a path of at most 70 characters"


class FrontEnd:
    """The front's end of one socket, WIRE or BEAT, in `folder` (a socket's path holds 107 bytes)."""

    def __init__(self, folder: Path, name: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(folder / name))
        self._listening.listen(1)
        self._listening.setblocking(False)
        self._line: Line | None = None

    @property
    def line(self) -> Line | None:
        """To the engine, once it has connected."""
        if self._line is None:
            try:
                self._line = Line(self._listening.accept()[0])
            except BlockingIOError:
                return None
        return self._line

    def fileno(self) -> int:
        """Readable when the engine has connected, and of its line from then on."""
        return (self._line or self._listening).fileno()

    def close(self) -> None:
        """Gives up what has not left."""
        if self._line is not None:
            self._line.close()
        self._listening.close()


class EngineEnd:
    """The engine's end of one socket; it belongs to the thread that made it. Where the front has gone, nothing comes
    and what is sent is lost.
    """

    def __init__(self, folder: Path, name: str) -> None:
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        own.connect(str(folder / name))
        self._line = Line(own)

    def send(self, events: Sequence[Event]) -> None:
        """Sends one frame; nothing is sent for no events."""
        if events:
            self._line.send(encode(events))

    def poll(self, seconds: float) -> list[Command]:
        """Every command that is there; waits up to `seconds` for the first."""
        frames = self._line.take(AT_ONCE)
        if not frames and seconds:
            self._line.wait(seconds)
            frames = self._line.take(AT_ONCE)
        elif self._line.pending:
            self._line.flush()
        return [command for frame in frames for command in decode_commands(frame)]

    def close(self) -> None:
        """Returns when what was sent has left, after SEND_LIMIT_SECONDS at most."""
        self._line.close(SEND_LIMIT_SECONDS)
