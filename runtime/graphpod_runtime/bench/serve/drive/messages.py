"""What the command and its driver processes say to each other: one JSON line each way."""

import msgspec

from graphpod_runtime.bench.serve.figures.record import Record
from graphpod_runtime.bench.serve.load.load import Load


class Target(msgspec.Struct, frozen=True):
    """Where requests go. `base` is the URL below which the endpoints are, `/v1` included."""

    base: str
    model: str
    key: str | None = None
    timeout: float = 600.0
    """Seconds of one request, from sending to its end."""


class Order(msgspec.Struct, frozen=True):
    """What driver `number` of `processes` is for: its share of loads that run at the same time. Those without an end
    stop when the command says so.
    """

    target: Target
    loads: tuple[Load, ...]
    number: int
    processes: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Prompts are made; the driver waits for Go."""


class Go(msgspec.Struct, frozen=True, tag=True):
    """The moment at which the load begins, by time.monotonic(), which all processes of a machine share."""

    at: float


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Loads without an end send nothing more."""


class Tick(msgspec.Struct, frozen=True, tag=True):
    """What the driver did so far: requests of loads with an end, failures and pieces of all loads."""

    sent: int
    ended: int
    failed: int
    pieces: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Every load with an end has ended."""


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The last words: records by load, the share of a core that the driver used, and by how many seconds its event
    loop was late (p99).
    """

    records: tuple[tuple[Record, ...], ...]
    busy: float
    lag: float


Said = Ready | Tick | Ended | Finished
Command = Go | Stop

said = msgspec.json.Decoder(Said).decode
"""One line of a driver."""
command = msgspec.json.Decoder(Command).decode
"""One line to a driver."""
order = msgspec.json.Decoder(Order).decode
"""The first line to a driver. The key travels here: not in arguments, which every process of the machine may read."""


def line(message: Said | Command | Order) -> bytes:
    """With its end."""
    return msgspec.json.encode(message) + b"\n"
