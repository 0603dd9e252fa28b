"""What can go wrong with a request, as frozen values, and which of the requests that match it befalls.

A fault is written as one flat row, in a file or to a control port:
`{"effect": "Answer", "status": 429, "retry_after": 1, "verbs": ["create"], "first": 3, "times": 1}`.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

Request = TypeVar("Request", contravariant=True)


class FaultError(ValueError):
    """A fault that cannot be, with what can."""


class Point(StrEnum):
    """Which side of the work done: nothing has happened yet, or everything but the asker's knowing."""

    Request = "Request"
    Answer = "Answer"


@dataclass(frozen=True, slots=True)
class Freeze:
    """The request is taken and nothing comes back, on an open connection, until the fault is lifted.

    At `Request` it is not passed on, unless lifted while the asker still waits; at `Answer` it is done, and the answer
    is held. An open watch delivers nothing meanwhile and everything afterwards.
    """

    point: Point = Point.Request


@dataclass(frozen=True, slots=True)
class Answer:
    """This HTTP status instead of the work. `retry_after` in seconds goes into the header of that name."""

    status: int
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class WatchError:
    """An ERROR event with this status inside a watch that answered 200, then its end."""

    code: int = 410
    after_events: int = 0


@dataclass(frozen=True, slots=True)
class Slow:
    """`delay` seconds before the work; the answer's body at `bytes_per_second` (None: at once). Lifted: at once."""

    delay: float = 0.0
    bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends inside the answer's body: after so many whole events of a watch, and bytes beyond them."""

    after_bytes: int = 0
    after_events: int = 0


Effect = Freeze | Answer | WatchError | Slow | Cut
EFFECTS: dict[str, type[Effect]] = {kind.__name__: kind for kind in (Freeze, Answer, WatchError, Slow, Cut)}


class Match(Protocol[Request]):
    """Which requests a fault is about."""

    def matches(self, request: Request, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Turn:
    """Which of the matching requests: from the `first` on (counted from 1), `times` of them (None: until lifted).

    Each of those only with `probability`, by a generator that starts from `seed`.
    """

    first: int = 1
    times: int | None = None
    probability: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.first < 1 or (self.times is not None and self.times < 1) or not 0 < self.probability <= 1:
            raise FaultError(f"{self}: first and times count from 1, probability is above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Fault(Generic[Request]):
    effect: Effect
    match: Match[Request]
    turn: Turn = Turn()


def read(row: Any, match: type[Any]) -> Fault[Any]:
    """The fault in a row; `match` is the dataclass of the stub's requests. Raises `FaultError`."""
    if not isinstance(row, dict) or row.get("effect") not in EFFECTS:
        raise FaultError(f"{row!r} is no fault: it needs an effect, one of {', '.join(EFFECTS)}")
    kinds = (EFFECTS[row["effect"]], match, Turn)
    known = {field.name: kind for kind in kinds for field in fields(kind)}
    if unknown := set(row) - set(known) - {"effect"}:
        raise FaultError(f"{row['effect']} has no {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    parts = [_part(kind, {name: row[name] for name in row if known.get(name) is kind}) for kind in kinds]
    return Fault(parts[0], parts[1], parts[2])


def write(fault: Fault[Any]) -> dict[str, Any]:
    """The row of a fault: what differs from the defaults."""
    row: dict[str, Any] = {"effect": type(fault.effect).__name__}
    for part in (fault.effect, fault.match, fault.turn):
        for field in fields(part):  # type: ignore[arg-type]
            value = getattr(part, field.name)
            if value != field.default:
                row[field.name] = sorted(value) if isinstance(value, frozenset) else value
    return row


def _part(kind: type[Any], values: dict[str, Any]) -> Any:
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in values]
    if missing:
        raise FaultError(f"{kind.__name__} needs {', '.join(missing)}")
    converted = {}
    for field in fields(kind):
        if field.name in values:
            value = values[field.name]
            if field.name == "point":
                value = _point(value)
            converted[field.name] = frozenset(value) if isinstance(value, list) else value
    return kind(**converted)


def _point(word: Any) -> Point:
    try:
        return Point(word)
    except ValueError:
        raise FaultError(f"point is {word!r}; it is one of {', '.join(Point)}") from None
