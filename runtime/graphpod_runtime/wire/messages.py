"""The messages between front and engine process, and their bytes.

A frame is a list of messages, so that one pass of the engine costs one frame.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import msgspec

from graphpod_runtime.wire.counters import Sample
from graphpod_runtime.wire.logit_processing import NO_PROCESSING, LogitProcessing


@dataclass(frozen=True, slots=True)
class Logprob:
    """How likely one token was where it stands, and `top`: the likeliest tokens there with theirs, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0
    """1: the likeliest there."""


class FinishReason(StrEnum):
    """How a request ended. `rejected` never reached the engine's queue: it was full. `slow_reader` is the front's own:
    it aborted the request, because the client did not read its answer.
    """

    Stop = "stop"
    Length = "length"
    Abort = "abort"
    Error = "error"
    Rejected = "rejected"
    SlowReader = "slow_reader"


class Pooling(StrEnum):
    """Which rows of a prompt an embedding is the mean of."""

    Last = "last"
    Mean = "mean"


GrammarKind = Literal["json_schema", "json_object", "regex", "choice", "ebnf", "structural_tag"]


class Grammar(msgspec.Struct, frozen=True):
    """What an answer must be, from its first to its last character. `text` by `kind`:

    json_schema: the schema as JSON; json_object: empty; regex: Rust's syntax, the whole answer matches; choice: a JSON
    list of strings; ebnf: rules of GBNF, as llama.cpp and xgrammar write them; lark: rules of llguidance's Lark;
    structural_tag: a JSON object of triggers and structures.
    """

    kind: GrammarKind
    text: str = ""
    whitespace: str | None = None
    """In JSON: a regular expression for the blanks between two tokens of it; empty: none; None: the default."""


class ReasoningLimit(msgspec.Struct, frozen=True):
    """After `tokens` of reasoning the answer goes on with `closes`. Reasoning begins with the answer where the prompt
    ends within some (`thinks`), else behind `opens`, if the answer begins with it. `closes` ends it, and each of
    `ends`.
    """

    tokens: int
    opens: str
    closes: str
    thinks: bool = False
    ends: list[str] = []


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A request: token ids in, at most `max_tokens` out. `stop_ids` end it in addition to the model's own end.
    `logprobs`, `logprob_ids` and `prompt_logprobs` are what LogprobRequest calls `answer`, `answer_ids` and `prompt`.
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
    logprob_ids: list[int] = []
    prompt_logprobs: int | None = None
    top_k: int = 0
    min_p: float = 0.0
    processing: LogitProcessing = NO_PROCESSING
    salt: str = ""
    """Prefixes are shared among requests of one salt only."""
    priority: int = 0
    """Lower ones are admitted earlier."""
    includes_stop: bool = False
    """The token that stops it is part of the answer."""
    pooling: Pooling | None = None
    """Set: the answer is no text but one vector; `max_tokens` is 1."""
    grammar: Grammar | None = None
    """None: the answer is any text."""
    reasoning: ReasoningLimit | None = None
    """None: as much as it likes."""
    traced: bool = False
    """Its events have `phases` and `decoded`."""


class Abort(msgspec.Struct, frozen=True, tag=True):
    """No client waits for `id` any more. An unknown id has ended already; that is no error."""

    id: str


class Arriving(msgspec.Struct, frozen=True, tag=True):
    """A request is being received: an engine that sleeps without work wakes up while the front reads it."""


class Drain(msgspec.Struct, frozen=True, tag=True):
    """End the process once every request has ended, and pages of the KV cache are in files, if it has some: that may
    take `seconds`."""

    seconds: float = 0.0


class Sleep(msgspec.Struct, frozen=True, tag=True):
    """Take the weights and the KV cache off the device once no request is open. Where that cannot be, a Residence says
    why."""


class Wake(msgspec.Struct, frozen=True, tag=True):
    """Bring them back. An engine that is awake says so."""


class Reload(msgspec.Struct, frozen=True, tag=True):
    """Read the weights in the model's folder again, into their places, once no request is open. `revision`: what they
    are called from then on."""

    revision: str


Command = Submit | Abort | Arriving | Drain | Sleep | Wake | Reload


class Phases(msgspec.Struct, frozen=True, array_like=True):
    """When a request reached the engine, was first admitted to a pass and had its first token, by time.monotonic() (one
    clock for all processes of a host); and prefill passes that landed between the last two, on a graph and eagerly.
    """

    arrived: float
    admitted: float
    first: float
    replayed: int
    eager: int


class Tokens(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """New tokens of `id`, in order. The token that stopped a request is among them only if it
    `includes_stop`. Log-probabilities where they
    were asked for: of these tokens, and once, in the first event, of the prompt's from its second token on. `cached`,
    in the first event, too: prompt tokens that the prefix cache had. `vector`: where pooling was asked for, the only
    answer, little-endian float32.
    """

    id: str
    ids: list[int]
    logprobs: list[Logprob] = []
    prompt_logprobs: list[Logprob] = []
    cached: int = 0
    phases: Phases | None = None
    """In the first event of a traced request."""
    vector: bytes = b""


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The last event of `id`, sent exactly once. `message` says why for `error` and `rejected`; the request itself is
    the cause of an error that is `its_own`. `complete`: it is a `stop` without a token that stopped it, because nothing
    can follow in its grammar.
    """

    id: str
    reason: FinishReason
    message: str | None = None
    its_own: bool = False
    decoded: tuple[int, int] | None = None
    """Of a traced request: decode passes since its first token, on a graph and eagerly."""
    complete: bool = False


class Warmup(msgspec.Struct, frozen=True, tag=True):
    """The start so far: the body of GET /warmup less the pod's own identity."""

    report: dict[str, Any]


class CounterSnapshot(msgspec.Struct, frozen=True, tag=True):
    """The series of the engine process that have changed since the last one, cumulative since its start."""

    values: list[Sample]


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """`progress`: time.monotonic() of the last progress (one clock for all processes of a host); `stage`: at what."""

    progress: float
    stage: str


CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP)
"""What a process does to itself. SIGKILL and SIGTERM come from somebody else, the kernel short of memory for one."""


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """The last words of an engine process: `code` is an ExitCode, `reason` its name."""

    reason: str
    message: str
    code: int
    crashed: bool = False
    """The process of another rank ended by a signal of its own, without a word."""


class Residence(msgspec.Struct, frozen=True, tag=True):
    """Where the weights are, after each command that concerns them and each change."""

    asleep: bool = False
    """They are not on the device."""
    idle: bool = False
    """No command asked for that: there were no requests. The next one wakes the engine."""
    source: str = ""
    """Where they come back from: Memory (a copy on the host) or Disk (the model's folder); empty before any sleep."""
    freed_bytes: int = 0
    """Of the device, by the latest sleep, as its memory was measured before and after."""
    sleep_seconds: float = 0.0
    wake_seconds: float = 0.0
    """Of the latest of each."""
    revision: str = ""
    """Of the latest Reload that was done."""
    problem: str = ""
    """Why the latest command could not be obeyed; the engine goes on as it was."""
    refused: str = ""
    """The revision of that command, if it was a Reload."""


Event = Tokens | Finished | Warmup | CounterSnapshot | Heartbeat | Fatal | Residence

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes of a stranger: a text that is not UTF-8 is no DecodeError."""

_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(list[Command])
_events = msgspec.msgpack.Decoder(list[Event])


def encode(messages: Sequence[Command | Event]) -> bytes:
    """One frame."""
    return _encoder.encode(messages)


def decode_commands(frame: bytes) -> list[Command]:
    """Raises msgspec.DecodeError for anything that is not a frame of commands."""
    return _commands.decode(frame)


def decode_events(frame: bytes) -> list[Event]:
    """Raises msgspec.DecodeError for anything that is not a frame of events."""
    return _events.decode(frame)
