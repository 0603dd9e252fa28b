"""How far a fetch has come: written by its threads, read by the admin port, the log and the end."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import Any

from graphpod_sources.names import size
from graphpod_sources.problem import Problem

WINDOW = 10.0  # s


class Phase(StrEnum):
    """What is being done."""

    Resolving = "Resolving"
    Waiting = "Waiting"
    Evicting = "Evicting"
    Downloading = "Downloading"
    Verifying = "Verifying"
    Unpacking = "Unpacking"
    Converting = "Converting"
    Complete = "Complete"
    Failed = "Failed"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look. Sizes in bytes, rates in bytes a second."""

    phase: Phase
    commit: str | None
    bytes: int
    total_bytes: int | None
    bytes_per_second: int
    files: int
    total_files: int | None
    problem: Problem | None

    @property
    def seconds_left(self) -> int | None:
        if self.total_bytes is None or not self.bytes_per_second or self.phase is not Phase.Downloading:
            return None
        return -(-(self.total_bytes - self.bytes) // self.bytes_per_second)

    def document(self) -> dict[str, Any]:
        """As `/progress` answers it."""
        return {
            "phase": str(self.phase),
            "commit": self.commit,
            "bytes": self.bytes,
            "totalBytes": self.total_bytes,
            "bytesPerSecond": self.bytes_per_second,
            "secondsLeft": self.seconds_left,
            "files": self.files,
            "totalFiles": self.total_files,
            "reason": str(self.problem.reason) if self.problem else None,
            "message": self.problem.message if self.problem else None,
        }

    def line(self) -> str:
        """As the log has it."""
        if self.problem:
            return f"{self.phase}: {self.problem.reason}: {self.problem.message}"
        total = f" of {size(self.total_bytes)}" if self.total_bytes is not None else ""
        files = f"{self.files}/{self.total_files} files" if self.total_files is not None else f"{self.files} files"
        left = f", about {self.seconds_left} s left" if self.seconds_left is not None else ""
        return f"{self.phase}: {size(self.bytes)}{total}, {files}, {size(self.bytes_per_second)}/s{left}"


class Progress:
    """The state of one fetch, safe from any thread. `received` counts bytes that came from the source in this run."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._phase, self._commit = Phase.Resolving, None  # type: Phase, str | None
        self._bytes = self._files = self._received = 0
        self._total_bytes: int | None = None
        self._total_files: int | None = None
        self._problem: Problem | None = None
        self._moved = clock()
        self._samples: deque[tuple[float, int]] = deque()

    def enter(self, phase: Phase) -> None:
        with self._lock:
            self._phase, self._moved = phase, self._clock()

    def resolved(self, commit: str, total_bytes: int | None, total_files: int) -> None:
        with self._lock:
            self._commit, self._total_bytes, self._total_files = commit, total_bytes, total_files

    def found(self, count: int, files: int = 0) -> None:
        """Bytes and files that are there from an earlier run, or that turned out not to count (negative)."""
        with self._lock:
            self._bytes += count
            self._files += files

    def receive(self, count: int) -> None:
        """Bytes that came from the source."""
        with self._lock:
            self._bytes += count
            self._received += count
            self._moved = self._clock()
            if not self._samples or self._moved - self._samples[-1][0] > WINDOW / 100:
                self._samples.append((self._moved, self._received))
            while self._samples and self._moved - self._samples[0][0] > WINDOW:
                self._samples.popleft()

    def work(self) -> None:
        """Something else than receiving went on: hashing, unpacking."""
        with self._lock:
            self._moved = self._clock()

    def finish_file(self) -> None:
        with self._lock:
            self._files += 1
            self._moved = self._clock()

    def complete(self) -> None:
        self.enter(Phase.Complete)

    def fail(self, problem: Problem) -> None:
        with self._lock:
            self._phase, self._problem = Phase.Failed, problem

    @property
    def received(self) -> int:
        return self._received

    @property
    def idle(self) -> float:
        """Seconds since anything moved."""
        with self._lock:
            return self._clock() - self._moved

    def snapshot(self) -> Snapshot:
        with self._lock:
            rate = 0
            if self._samples and (since := self._clock() - self._samples[0][0]) > 0:
                rate = int((self._received - self._samples[0][1]) / since)
            return Snapshot(
                self._phase,
                self._commit,
                self._bytes,
                self._total_bytes,
                rate,
                self._files,
                self._total_files,
                self._problem,
            )
