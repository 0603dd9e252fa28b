"""Responses in the memory of one pod: bounded in count, bytes and age; gone with the pod.

A response that runs is held by what runs it, and is bounded by the places for requests. One that has ended is bytes:
its JSON, and the conversation up to its end, so that a later response can go on from there. The oldest goes first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

MAX_RESPONSES = 4096
MAX_BYTES = 64 << 20
"""Of all responses that have ended."""
MAX_AGE_SECONDS = 3600.0
"""After a response has ended."""
OVERHEAD_BYTES = 1024
"""What an entry takes besides its texts."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A response that has ended, as JSON texts: itself, its input items, the chat's turns up to its end."""

    response: bytes
    items: bytes
    turns: bytes
    status: str
    background: bool

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.response) + len(self.items) + len(self.turns) + OVERHEAD_BYTES


class Running(Protocol):
    """A response that has not ended."""

    background: bool

    def so_far(self) -> Kept:
        """As it is now."""

    def cancel(self) -> None:
        """Ends it; it reports its end as any other."""


class ResponseStore:
    """Responses by id."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._running: dict[str, Running] = {}
        self._kept: dict[str, tuple[float, Kept]] = {}
        """By age, the oldest first."""
        self.bytes = 0
        """Of all that have ended."""

    def __len__(self) -> int:
        return len(self._running) + len(self._kept)

    def begin(self, id: str, running: Running) -> None:
        """A response runs."""
        self._running[id] = running

    def end(self, id: str, kept: Kept) -> None:
        """It has ended. One that was deleted meanwhile is not kept."""
        if self._running.pop(id, None) is not None:
            self.keep(id, kept)

    def keep(self, id: str, kept: Kept) -> None:
        """Keeps a response that has ended."""
        self._expire()
        self._kept[id] = self._clock(), kept
        self.bytes += kept.size
        while len(self._kept) > MAX_RESPONSES or self.bytes > MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def find(self, id: str) -> Running | Kept | None:
        """The response of this id; None for one that is unknown, dropped or too old."""
        self._expire()
        entry = self._kept.get(id)
        return self._running.get(id) if entry is None else entry[1]

    def delete(self, id: str) -> None:
        """Forgets a response; one that runs is cancelled."""
        if running := self._running.pop(id, None):
            running.cancel()
        elif id in self._kept:
            self._drop(id)

    def _expire(self) -> None:
        latest = self._clock() - MAX_AGE_SECONDS
        while self._kept and next(iter(self._kept.values()))[0] < latest:
            self._drop(next(iter(self._kept)))

    def _drop(self, id: str) -> None:
        _, kept = self._kept.pop(id)
        self.bytes -= kept.size
