"""The wire between front and engine process: messages, their bytes, and the engine's ends of the two sockets.

One ZMQ PAIR socket carries commands down and events up; a second one carries heartbeats, because a ZMQ socket
belongs to one thread and the heart beats in its own. The front binds both as files in a private folder, the engine
connects. A frame is a list of messages, so that one pass of the engine costs one frame.

No torch here: the front imports this module.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import zmq

from graphpod_runtime.engine.counters import Sample
from graphpod_runtime.engine.sequence import Logprob


class FinishReason(StrEnum):
    """How a request ended. `rejected` never reached the engine's queue: it was full."""

    Stop = "stop"
    Length = "length"
    Abort = "abort"
    Error = "error"
    Rejected = "rejected"


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A request: token ids in, at most `max_tokens` out. `stop_ids` end it in addition to the model's own end.
    `logprobs` and `prompt_logprobs` are what LogprobRequest calls `answer` and `prompt`.
    """

    id: str
    prompt: list[int]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop_ids: list[int] = []
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    top_k: int = 0
    min_p: float = 0.0


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Nobody waits for `id` any more. An unknown id has ended already; that is no error."""

    id: str


class Drain(msgspec.Struct, frozen=True, tag=True):
    """End the process once every request has ended."""


Command = Submit | Abort | Drain


class Tokens(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """New tokens of `id`, in order. The token that stopped a request is not among them. Log-probabilities where they
    were asked for: of these tokens, and once, in the first event, of the prompt's from its second token on.
    """

    id: str
    ids: list[int]
    logprobs: list[Logprob] = []
    prompt_logprobs: list[Logprob] = []


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The last event of `id`, sent exactly once. `message` says why for `error` and `rejected`."""

    id: str
    reason: FinishReason
    message: str | None = None


class Warmup(msgspec.Struct, frozen=True, tag=True):
    """The start so far: the body of GET /warmup less the pod's own identity."""

    report: dict[str, Any]


class Counters(msgspec.Struct, frozen=True, tag=True):
    """Every series of the engine process, cumulative since its start."""

    values: list[Sample]


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """`progress`: time.monotonic() of the last progress (one clock for all processes of a host); `stage`: at what."""

    progress: float
    stage: str


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """The last words of an engine process: `code` is an ExitCode, `reason` its name."""

    reason: str
    message: str
    code: int


Event = Tokens | Finished | Warmup | Counters | Heartbeat | Fatal

WIRE = "wire"
BEAT = "beat"

_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(list[Command])
_events = msgspec.msgpack.Decoder(list[Event])

SEND_LIMIT_MS = 2000
"""A closing engine waits this long for its last frame to leave."""


def encode(messages: Sequence[Command | Event]) -> bytes:
    """One frame."""
    return _encoder.encode(messages)


def decode_commands(frame: bytes) -> list[Command]:
    """Raises msgspec.DecodeError for anything that is not a frame of commands."""
    return _commands.decode(frame)


def decode_events(frame: bytes) -> list[Event]:
    """Raises msgspec.DecodeError for anything that is not a frame of events."""
    return _events.decode(frame)


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
