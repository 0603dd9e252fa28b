"""The faults that are in force, which request each befalls, and how often it has. Safe from any thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from stubs.faults.fault import Fault

Request = TypeVar("Request")


class Armed(Generic[Request]):
    """A fault in force. `hits` counts the requests it befell."""

    def __init__(self, number: int, fault: Fault[Request]) -> None:
        self.number, self.fault = number, fault
        self.matches = self.hits = 0
        self._random = random.Random(fault.turn.seed)
        self._changed = threading.Condition()
        self._lifted = False
        self._callbacks: list[Callable[[], None]] = []

    def reached(self, hits: int = 1, timeout: float = 30.0) -> None:
        """Wait until it has befallen so many requests. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout):
                raise TimeoutError(f"{self.fault} befell {self.hits} of {hits} requests within {timeout:g} s")

    @property
    def lifted(self) -> bool:
        return self._lifted

    def until_lifted(self, timeout: float | None = None) -> None:
        """Hold the calling thread while the fault is in force, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._lifted, timeout)

    def when_lifted(self, tell: Callable[[], None]) -> None:
        """Call `tell` once it is lifted, at once when it is already."""
        with self._changed:
            if not self._lifted:
                self._callbacks.append(tell)
                return
        tell()

    def befalls(self, request: Request) -> bool:
        """Whether it hits this request, which counts."""
        turn = self.fault.turn
        with self._changed:
            if self._lifted or not self.fault.match.matches(request):
                return False
            self.matches += 1
            spent = turn.times is not None and self.hits >= turn.times
            if self.matches < turn.first or spent or self._random.random() >= turn.probability:
                return False
            self.hits += 1
            self._changed.notify_all()
            return True

    def lift(self) -> None:
        with self._changed:
            self._lifted = True
            pending, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for tell in pending:
            tell()


class Board(Generic[Request]):
    """All faults of one stub. `added` is called with each new one, from the thread that adds it."""

    def __init__(
        self, faults: Iterable[Fault[Request]] = (), added: Callable[[Armed[Any]], None] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._numbers = 0
        self._armed: dict[int, Armed[Request]] = {}
        self._added = added or (lambda _: None)
        for fault in faults:
            self.add(fault)

    def add(self, fault: Fault[Request]) -> Armed[Request]:
        with self._lock:
            self._numbers += 1
            armed = self._armed[self._numbers] = Armed(self._numbers, fault)
        self._added(armed)
        return armed

    def lift(self, number: int) -> bool:
        """End a fault; what it holds goes on. False when there is none of that number."""
        with self._lock:
            armed = self._armed.pop(number, None)
        if armed is None:
            return False
        armed.lift()
        return True

    def clear(self) -> None:
        """End all of them."""
        for armed in self.all():
            self.lift(armed.number)

    def all(self) -> list[Armed[Request]]:
        with self._lock:
            return list(self._armed.values())

    def strike(self, request: Request) -> list[Armed[Request]]:
        """The faults that befall this request, oldest first."""
        return [armed for armed in self.all() if armed.befalls(request)]
