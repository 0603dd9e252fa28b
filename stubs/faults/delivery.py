"""How an answer's body passes a stub: whole, cut at a byte or at an event, or ended by an ERROR event. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from stubs.faults.fault import Cut, Effect, WatchError

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""`reason` of a Kubernetes Status by its code; source: metav1.StatusReason."""
TICKS = 20
"""Pieces a second that a slow body comes in."""


def status(code: int) -> bytes:
    """The body of a Kubernetes Status that says no with this code."""
    message = "too old resource version: 1 (2)" if code == 410 else f"{code} from the fault proxy"
    return json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": REASONS.get(code, "Unknown"),
            "code": code,
        }
    ).encode()


def error_event(code: int) -> bytes:
    """The line by which a watch that began well says that it cannot go on."""
    return b'{"type":"ERROR","object":' + status(code) + b"}\n"


def pieces(body: bytes, bytes_per_second: int | None) -> list[bytes]:
    """The body as it is written: at a given rate, about one piece every 1/`TICKS` seconds."""
    size = len(body) if bytes_per_second is None else max(1, bytes_per_second // TICKS)
    return [body[start : start + size] for start in range(0, len(body), max(1, size))]


@dataclass(slots=True)
class Delivery:
    """One body under way. `ended` once nothing more may pass; `cut` when the connection ends with it."""

    ended: bool = False
    cut: bool = False
    _endings: list[Cut | WatchError] = field(default_factory=list)
    _events: int = 0  # whole units that passed since the oldest ending is in force
    _bytes: int = 0  # and bytes of those units that came after its last whole event

    def meet(self, effect: Effect) -> bytes:
        """Put an effect in force; what it says at once."""
        if isinstance(effect, Cut | WatchError):
            self._endings.append(effect)
        return self._due()

    def let(self, unit: bytes) -> bytes:
        """What of the next unit (an event of a watch, else a piece of the body) passes, with what is said after it."""
        if not self._endings:
            return unit
        first = self._endings[0]
        if isinstance(first, Cut) and self._events >= first.after_events:
            passing = unit[: first.after_bytes - self._bytes]
            self._bytes += len(passing)
        else:
            passing = unit
            self._events += 1
        return passing + self._due()

    def _due(self) -> bytes:
        if self.ended or not self._endings:
            return b""
        first = self._endings[0]
        if self._events < first.after_events:
            return b""
        if isinstance(first, Cut):
            self.ended = self.cut = self._bytes >= first.after_bytes
            return b""
        self.ended = True
        return error_event(first.code)
