"""Marks on a request's way to its first token: when it passed, by time.perf_counter_ns(), one clock for all processes.

A process whose environment has GRAPHPOD_MARKS appends them to that file. Methods of the front are wrapped, so that a
front without marks pays for none.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "GRAPHPOD_MARKS"
FRONT_READ, SUBMITTING, SUBMITTED, ENGINE_READ, ENGINE_SENDING, FRAME_READ, WRITING = range(7)
STAGES = {
    "client -> front": (-1, FRONT_READ),
    "front, to the wire": (FRONT_READ, SUBMITTING),
    "front, writes the wire": (SUBMITTING, SUBMITTED),
    "wire to the engine": (SUBMITTED, ENGINE_READ),
    "engine without a model": (ENGINE_READ, ENGINE_SENDING),
    "wire to the front": (ENGINE_SENDING, FRAME_READ),
    "front, token to socket": (FRAME_READ, WRITING),
    "front -> client": (WRITING, 7),
}
"""From mark to mark; the client's own are -1 and 7."""


def mark(which: int) -> None:
    """Notes it where marks are asked for."""
    if _file is not None:
        os.write(_file, b"%d %d\n" % (which, time.perf_counter_ns()))


def stages_of(file: Path, skip: int, asked: list[tuple[int, int]]) -> dict[str, float]:
    """Microseconds of each stage, medians over requests that were asked one at a time at these times; `skip`: bytes of
    the file that are of earlier ones.
    """
    with file.open("rb") as opened:
        opened.seek(skip)
        marks = sorted((int(at), int(which)) for which, at in map(bytes.split, opened))
    found: dict[str, list[float]] = defaultdict(list)
    position = 0
    for began, came in asked:
        times = {-1: began, 7: came}
        while position < len(marks) and marks[position][0] <= came:
            at, which = marks[position]
            position += 1
            if at >= began:
                times.setdefault(which, at)
        for name, (start, end) in STAGES.items():
            found[name].append((times[end] - times[start]) / 1000)
    return {name: round(statistics.median(times), 1) for name, times in found.items()}


def wrap_front() -> None:
    """Marks in this process's front, where they are asked for."""
    if _file is None:
        return
    from graphpod_runtime.front.requests.engine_client import EngineClient
    from graphpod_runtime.front.server.connection import Connection

    class Marked:
        """A transport that marks the first event it writes."""

        def __init__(self, own: Any) -> None:
            self._own = own

        def __getattr__(self, name: str) -> Any:
            return getattr(self._own, name)

        def write(self, data: bytes) -> None:
            if b"data: " in data:
                mark(WRITING)
            self._own.write(data)

        def writelines(self, data: list[bytes]) -> None:
            if any(b"data: " in one for one in data):
                mark(WRITING)
            self._own.writelines(data)

    _wrap(Connection, "data_received", FRONT_READ)
    _wrap(EngineClient, "_send", SUBMITTING, SUBMITTED)
    _wrap(EngineClient, "_read", FRAME_READ)
    made: Callable[..., None] = Connection.connection_made
    Connection.connection_made = lambda self, transport: made(self, Marked(transport))  # type: ignore[method-assign]


def _wrap(owner: Any, name: str, before: int, after: int | None = None) -> None:
    own = getattr(owner, name)

    def marked(*arguments: Any) -> Any:
        mark(before)
        found = own(*arguments)
        if after is not None:
            mark(after)
        return found

    setattr(owner, name, marked)


_file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if (path := os.environ.get(VARIABLE)) else None
