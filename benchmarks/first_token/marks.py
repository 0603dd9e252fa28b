"""Marks on a request's way to its first token: when it passed, by time.perf_counter_ns(), one clock for all processes.

A process whose environment has GRAPHPOD_MARKS appends them to that file, once the request is past it. Functions are
wrapped, so that a server without marks pays for none. An earlier commit may lack one of them: its part then counts to
the next.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timed_call import timed

VARIABLE = "GRAPHPOD_MARKS"
FRONT, SERVER = "graphpod_runtime.front", "graphpod_runtime.front.server"
REQUESTS, ENGINE = "graphpod_runtime.front.requests", "graphpod_runtime.engine"

PARTS = {
    "arrival": "client -> front, by the socket",
    "http": "front: header and body are read, the route is found",
    "body": "front: JSON, and the fields of the request",
    "tokenise": "front: a text becomes tokens; admission, options",
    "submit": "front: the request to the engine is made",
    "encode": "front: its bytes",
    "wire send": "front: they are given to the wire",
    "wire to engine": "until the engine's loop has them",
    "decode": "engine: the request is read",
    "admission": "engine: it is in the queue",
    "plan": "engine: a pass is planned",
    "inputs": "engine: what the pass reads is on its way",
    "launch": "engine: the pass is launched",
    "launch of draw": "engine: head, draw and copies are launched",
    "wait": "engine: waits until the pass has landed",
    "land": "engine: its token is taken",
    "events": "engine: counters and events",
    "encode back": "engine: their bytes are given to the wire",
    "wire back": "until the front's loop has them",
    "decode back": "front: they are read",
    "wake-up": "front: counters, and whoever waits runs",
    "detokenise": "front: text of the token",
    "event": "front: the event is made",
    "departure": "front -> client, by the socket; its write included",
}
"""Each ends with its own mark, and begins with the one before it."""
MARKS = tuple(PARTS)
OF_PASS = range(MARKS.index("plan"), MARKS.index("land") + 1)
"""A prompt of several passes has several of these: the last count, so earlier passes are part of `plan`."""
LAST_OF_ENGINE, LAST_OF_FRONT = "encode back", "event"
NEITHER = len(MARKS)
"""In place of a mark: the device's time for a pass, by its own clock."""

_file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if (path := os.environ.get(VARIABLE)) else None
_waiting: list[tuple[int, int, int]] = []


def mark(name: str | None, at: int | None = None) -> None:
    """Notes it. The last mark of a process writes all of them: it is behind what is measured."""
    if name is None:
        return
    _waiting.append((at or time.perf_counter_ns(), MARKS.index(name), 0))
    if name in (LAST_OF_ENGINE, LAST_OF_FRONT):
        _write()


def _write() -> None:
    assert _file is not None, "nothing is marked without a file"
    text = "".join(f"{at} {which} {spent}\n" for at, which, spent in _waiting)
    _waiting.clear()
    os.write(_file, text.encode())


def parts_of(file: Path, skip: int, asked: list[tuple[int, int]]) -> tuple[dict[str, float], float]:
    """Microseconds of each part, medians over requests that were asked one at a time at these times, and the device's
    own time for their passes; `skip`: bytes of the file that are of earlier ones.
    """
    with file.open("rb") as opened:
        opened.seek(skip)
        marks = sorted(tuple(map(int, line.split())) for line in opened)
    found, device = defaultdict[str, list[float]](list), list[float]()
    position = 0
    for began, came in asked:
        times, passes = dict[int, int](), 0
        while position < len(marks) and marks[position][0] <= came:
            at, which, nanoseconds = marks[position]
            position += 1
            if which == NEITHER:
                passes += nanoseconds
            # What comes before its arrival belongs to the request before.
            elif at >= began and (which == 0 or 0 in times) and (which in OF_PASS or which not in times):
                times[which] = at
        times[NEITHER - 1] = came
        before = began
        for which, name in enumerate(MARKS):
            if (at := times.get(which)) is not None:
                # Of two processes either may be first.
                found[name].append(max(0, at - before) / 1000)
                before = max(before, at)
        device.append(passes / 1000)
    return {name: round(statistics.median(found[name]), 1) for name in MARKS if name in found}, round(
        statistics.median(device), 1
    )


def wrap_front() -> None:
    """Marks in this process's front, where they are asked for."""
    if _file is None:
        return
    _around(f"{SERVER}.connection", "Connection.data_received", "arrival")
    _around(f"{SERVER}.application", "Application.__call__", "http")
    _around(f"{FRONT}.openai.parse", "parsed", None, "body")
    _around(f"{REQUESTS}.generation", "Generation.begin", "tokenise")
    _around(f"{REQUESTS}.engine_client", "encode", None, "encode")
    _around(f"{REQUESTS}.engine_client", "EngineClient._send", "submit", "wire send")
    _around(f"{REQUESTS}.engine_client", "decode_events", "wire back", "decode back", lambda given, found: _told(found))
    _around(f"{REQUESTS}.generation", "Generation._take", "wake-up", "detokenise")
    from graphpod_runtime.front.server.connection import Connection

    class Marked:
        """A transport that marks the first event it writes."""

        def __init__(self, own: Any) -> None:
            self._own = own

        def __getattr__(self, name: str) -> Any:
            return getattr(self._own, name)

        def write(self, data: bytes) -> None:
            began = time.perf_counter_ns()
            self._own.write(data)
            if b"data: " in data:
                mark("event", began)

        def writelines(self, data: list[bytes]) -> None:
            began = time.perf_counter_ns()
            self._own.writelines(data)
            if any(b"data: " in one for one in data):
                mark("event", began)

    made: Callable[..., None] = Connection.connection_made
    Connection.connection_made = lambda self, transport: made(self, Marked(transport))  # type: ignore[method-assign]


def wrap_wire() -> None:
    """Marks at the wire of this process's engine, where they are asked for."""
    if _file is None:
        return
    socket = "graphpod_runtime.wire.socket"
    _around(socket, "decode_commands", "wire to engine", "decode", lambda given, found: _asked(found))
    _around(socket, "EngineEnd.send", "events", "encode back", lambda given, found: _told(given[1]))


def wrap_engine() -> None:
    """Marks in this process's engine, between those of `wrap_wire`."""
    if _file is None:
        return
    _around(f"{ENGINE}.schedule.scheduler", "Scheduler.submit", None, "admission")
    _around(f"{ENGINE}.schedule.scheduler", "Scheduler.next", None, "plan", lambda given, batch: batch is not None)
    _around(f"{ENGINE}.runner", "inputs_of", None, "inputs")
    _around(f"{ENGINE}.runner", "Runner._run", None, "launch")
    _around(f"{ENGINE}.runner", "Runner.launch", None, "launch of draw")
    _around(f"{ENGINE}.forward.pass_in_flight", "Moment.wait", None, "wait")
    _around(f"{ENGINE}.runner", "Runner.land", None, "land", _computed)


def _told(events: Sequence[object]) -> bool:
    return any(type(event).__name__ == "Tokens" for event in events)


def _asked(commands: Sequence[object]) -> bool:
    return any(type(command).__name__ == "Submit" for command in commands)


def _computed(given: Sequence[Any], found: object) -> bool:
    _waiting.append((time.perf_counter_ns(), NEITHER, int(given[1].device_seconds * 1e9)))
    return True


def _around(
    module: str,
    name: str,
    before: str | None = None,
    after: str | None = None,
    of: Callable[[Sequence[Any], Any], bool] = lambda given, found: True,
) -> None:
    """Marks before and after a call, if `of` its arguments and its result is true."""

    def then(given: Sequence[Any], found: Any, began: int, _: int) -> None:
        if of(given, found):
            mark(before, began)
            mark(after)

    timed(module, name, then, optional=True)
