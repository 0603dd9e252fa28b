"""What the command and its processes say to each other: one JSON line each way, on standard input and output."""

from enum import StrEnum
from pathlib import Path

import msgspec

from graphpod_policy import Device, EngineConfig
from graphpod_runtime.bench.figures.floors import ModelFacts, Rates
from graphpod_runtime.bench.figures.meter import Samples
from graphpod_runtime.bench.figures.result import BreakCost, Cache, Machine, Start
from graphpod_runtime.bench.figures.workload import Workload


class Order(msgspec.Struct, frozen=True, tag=True):
    """What a process is for; its only argument. `began` is time.time() just before it was started."""

    began: float
    folder: str
    device: Device
    dtype: str
    random: bool
    workload: Workload
    threads: int | None = None


class Survey(Order, frozen=True, tag=True):
    """Tell the machine, the model and the rates; then end."""


class Serve(Order, frozen=True, tag=True, kw_only=True):
    """Be the engine of `config` (engine.json), then do what is asked."""

    config: str
    cache: Cache

    def engine(self) -> EngineConfig:
        """Its configuration."""
        return EngineConfig.parse(self.config.encode())


class Transformers(Order, frozen=True, tag=True):
    """Be Hugging Face transformers, as a reference; then do what is asked."""


class Task(StrEnum):
    """What an engine is asked for, a line each; the end of its input ends it."""

    Round = "round"
    Breaks = "breaks"
    Wire = "wire"
    """Serve the wire in the folder that the next line names, until drained."""


class Note(msgspec.Struct, frozen=True, tag=True):
    """A line for the person who waits. One that is `passing` is overwritten by the next."""

    text: str
    passing: bool = False


class Surveyed(msgspec.Struct, frozen=True, tag=True):
    """The answer to Survey."""

    machine: Machine
    model: ModelFacts
    rates: Rates


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine can be measured. A reference has no start."""

    start: Start | None


class Round(msgspec.Struct, frozen=True, tag=True):
    """The answer to Task.Round; `fallbacks` so far."""

    samples: Samples
    fallbacks: int


class Breaks(msgspec.Struct, frozen=True, tag=True):
    """The answer to Task.Breaks; `left_out` says why there are none."""

    costs: tuple[BreakCost, ...]
    left_out: str | None


class Served(msgspec.Struct, frozen=True, tag=True):
    """The answer to Task.Wire, when it was drained."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The last words of a process that cannot do what it is for."""

    reason: str


Message = Note | Surveyed | Ready | Round | Breaks | Served | Failed

_order = msgspec.json.Decoder(Survey | Serve | Transformers)
_decoder = msgspec.json.Decoder(Message)


def encode(message: Order | Message) -> str:
    """One line, without its end."""
    return msgspec.json.encode(message).decode()


def order_of(text: str) -> Survey | Serve | Transformers:
    """The order that a process got."""
    return _order.decode(text)


def message_of(line: str) -> Message:
    """One line of a process. Raises msgspec.DecodeError for anything else."""
    return _decoder.decode(line)


def folder_of(order: Order) -> Path:
    """The model's."""
    return Path(order.folder)
