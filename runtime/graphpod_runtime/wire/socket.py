"""The two ZMQ sockets between front and engine process, and the engine's ends of them.

One PAIR socket carries commands down and events up; a second one carries heartbeats, because a ZMQ socket belongs to
one thread and the heart beats in its own. The front binds both as files in a private folder, the engine connects.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zmq

from graphpod_runtime.wire.messages import Command, Event, decode_commands, encode

WIRE = "wire"

BEAT = "beat"

SEND_LIMIT_MS = 2000
"""A closing engine waits this long for its last frame to leave."""


def address(folder: Path, name: str) -> str:
    """The ZMQ address of one of the two sockets, WIRE or BEAT, in `folder` (a socket path holds 107 bytes)."""
    return f"ipc://{folder / name}"


def unbounded(socket: "zmq.Socket[Any]") -> None:
    """Makes a socket never block its sender: a slow reader costs memory, not a deadlock. Before bind or connect."""
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)


class EngineEnd:
    """The engine's end of one socket; it belongs to the thread that made it."""

    def __init__(self, folder: Path, name: str) -> None:
        # A context of its own: ending it is what waits for queued frames, and would wait for others' open sockets too.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        unbounded(self._socket)
        self._socket.setsockopt(zmq.LINGER, SEND_LIMIT_MS)
        self._socket.connect(address(folder, name))

    def send(self, events: Sequence[Event]) -> None:
        """Queues one frame; nothing is sent for no events."""
        if events:
            self._socket.send(encode(events))

    def poll(self, seconds: float) -> list[Command]:
        """Every command that is there; waits up to `seconds` for the first."""
        commands: list[Command] = []
        timeout = int(seconds * 1000)
        while self._socket.poll(timeout):
            commands += decode_commands(self._socket.recv())
            timeout = 0
        return commands

    def close(self) -> None:
        """Returns when queued frames have left, after SEND_LIMIT_MS at most."""
        self._socket.close()
        self._context.term()
