"""What may go wrong with a stub engine, as a user writes it: `slow:prefill:64:30s,oom:decode:4`.

One grammar for the process (`GRAPHPOD_STUB_FAULT`) and for simulated pods (annotation `stub.graphpod.dev/fault`).
The table `FORMS` is all of it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

CHOICES: dict[str, tuple[str, ...]] = {
    "phase": ("prefill", "decode"),
    "state": ("Loading", "Capturing", "SelfChecking", "Ready"),
    "mouth": ("Loading", "Capturing", "SelfChecking", "Ready", "warmup"),
    "lie": ("hash", "uid", "ready"),
    "answer": ("huge", "malformed", "error", "redirect"),
    "fatal": ("fatal",),
}
"""The words that may stand where a form names a choice; a size is a number, seconds read `30s` or `0.5s`."""


class FaultError(ValueError):
    """A fault that cannot be understood; the message says what is expected. It is never ignored."""


class Kind(StrEnum):
    """What goes wrong."""

    Slow = "slow"
    Oom = "oom"
    Capture = "capture"
    SelfCheck = "selfcheck"
    Load = "load"
    Dead = "dead"
    Killed = "killed"
    Stuck = "stuck"
    Silent = "silent"
    Lying = "lying"
    Answer = "answer"
    Flap = "flap"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Only the fields that its form names are set; `seconds` are seconds."""

    kind: Kind
    phase: str = ""
    size: int = 0
    fatal: bool = False
    at: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        words = [str(self.kind), self.phase, str(self.size or ""), "fatal" if self.fatal else "", self.at]
        words.append(f"{self.seconds:g}s" if self.seconds else "")
        return ":".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Form:
    """How a kind is written: the fields it takes, in order (a `?`: may be left out), and what it does."""

    takes: tuple[str, ...]
    does: str


FORMS: dict[Kind, Form] = {
    Kind.Slow: Form(("phase", "size", "seconds"), "capturing this size takes that much longer"),
    Kind.Oom: Form(
        ("phase", "size", "fatal?"),
        "memory ends while this size is captured: the ladder is halved once, then a weaker policy or, with "
        "onCaptureFailure: Fail, exit 13; `fatal`: exit 13 at once",
    ),
    Kind.Capture: Form(("phase", "size"), "this size cannot be captured: a weaker policy, or exit 12"),
    Kind.SelfCheck: Form(("phase", "size"), "the replay of this size differs: a weaker policy, or exit 14"),
    Kind.Load: Form((), "the weights cannot be read: exit 11"),
    Kind.Dead: Form(
        ("state", "seconds?"), "the engine dies in this state, or so long after: exit 15, of several ranks 31"
    ),
    Kind.Killed: Form(("state", "seconds?"), "the kernel kills it for its memory: exit 137, OOMKilled"),
    Kind.Stuck: Form(
        ("state", "seconds?"),
        "no progress from this state on: exit 16 after 60 s, or that long; of several ranks 32 after 20 s",
    ),
    Kind.Silent: Form(
        ("mouth", "seconds?"),
        "in this state, or so long after, the admin port begins to accept and never answer; warmup: /warmup alone",
    ),
    Kind.Lying: Form(
        ("lie",), "/warmup names another configuration (hash) or pod (uid); ready: /readyz is 200 amid the captures"
    ),
    Kind.Answer: Form(("answer",), "/warmup answers 1 MiB, no JSON, a 500 or a redirect"),
    Kind.Flap: Form(("seconds",), "once Ready, /readyz changes its mind each time so many seconds have passed"),
}


def _one_of(choice: str) -> Callable[[str], str]:
    words = CHOICES[choice]

    def read(word: str) -> str:
        if word not in words:
            raise FaultError(f"{word!r} is not one of {', '.join(words)}")
        return word

    return read


def _size(word: str) -> int:
    if not word.isdigit() or int(word) < 1:
        raise FaultError(f"{word!r} is no size; expected a number from 1")
    return int(word)


def _seconds(word: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?s", word):
        raise FaultError(f"{word!r} is no time; expected seconds as in 30s or 0.5s")
    return float(word[:-1])


def _fatal(word: str) -> bool:
    return bool(_one_of("fatal")(word))


READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "phase": ("phase", _one_of("phase")),
    "size": ("size", _size),
    "seconds": ("seconds", _seconds),
    "fatal": ("fatal", _fatal),
    "state": ("at", _one_of("state")),
    "mouth": ("at", _one_of("mouth")),
    "lie": ("at", _one_of("lie")),
    "answer": ("at", _one_of("answer")),
}
"""A form's word: the field of Fault it fills, and how it is read."""


def parse(text: str) -> tuple[Fault, ...]:
    """The faults of a comma-separated list; none of an empty one. Raises FaultError."""
    return tuple(_parse_one(entry.strip()) for entry in text.split(",") if entry.strip())


def _parse_one(entry: str) -> Fault:
    word, *arguments = entry.split(":")
    try:
        kind = Kind(word)
    except ValueError:
        raise FaultError(f"fault {entry!r}: {word!r} is not one of {', '.join(Kind)}") from None
    takes = FORMS[kind].takes
    needed = sum(not name.endswith("?") for name in takes)
    if not needed <= len(arguments) <= len(takes):
        raise FaultError(f"fault {entry!r}: expected {written(kind)}")
    values: dict[str, Any] = {}
    for name, argument in zip(takes, arguments, strict=False):
        field, read = READERS[name.rstrip("?")]
        try:
            values[field] = read(argument)
        except FaultError as error:
            raise FaultError(f"fault {entry!r}: {error}; the form is {written(kind)}") from None
    return Fault(kind, **values)


def written(kind: Kind) -> str:
    """The form as one writes it: `oom:<phase>:<size>[:<fatal>]`."""
    parts = [f"[:<{name[:-1]}>]" if name.endswith("?") else f":<{name}>" for name in FORMS[kind].takes]
    return "".join([kind, *parts])
