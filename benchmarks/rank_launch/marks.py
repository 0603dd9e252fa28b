"""Marks on the way of a prompt to its launch: when a process passed them, by one clock of all processes of a machine.

Functions are wrapped. A process writes its marks to a file of its own when it launches, so writing is not measured.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timed_call import timed

FOLDER = "GRAPHPOD_RANK_MARKS"
"""The variable that names the folder of these files."""
AWAKE = "GRAPHPOD_RANK_AWAKE"
"""That of the seconds for which loops stay awake without work."""
ENGINE, RANKS = "graphpod_runtime.engine", "graphpod_runtime.engine.ranks"

FIRST = {
    "came": "from the front's write until the engine's loop has the frame",
    "admitted": "it is read, and its sequence is in the queue",
    "planned": "a pass is planned",
    "ordered": "the other ranks' order is made and sent",
    "inputs": "what the pass reads is on its way to the device",
    "launched": "the graph is chosen; its load comes next",
}
OTHERS = {
    "came": "from the plan until a rank has the order's frame",
    "read": "the order is read",
    "begun": "the likenesses of its sequences are there",
    "inputs": "as at the first rank",
    "launched": "as at the first rank",
}
"""Each ends with its own mark, and begins with the one before it."""

_waiting: list[str] = []


def mark(name: str, at: int | None = None) -> None:
    """Notes it."""
    _waiting.append(f"{name} {at or time.perf_counter_ns()}\n")


def around(
    module: str,
    name: str,
    before: str | None = None,
    after: str | None = None,
    of: Callable[[Sequence[Any], Any], bool] = lambda given, found: True,
) -> None:
    """Marks before and after a call, if `of` its arguments and its result is true."""

    def then(given: Sequence[Any], found: Any, began: int, ended: int) -> None:
        if of(given, found):
            if before is not None:
                mark(before, began)
            if after is not None:
                mark(after, ended)

    timed(module, name, then)


def wrap_launch(rank: int) -> None:
    """Marks of any rank; needs torch."""
    file = os.open(Path(os.environ[FOLDER]) / str(rank), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    from graphpod_runtime.graphs.captured_graphs import PhaseGraphs

    around(f"{ENGINE}.runner", "inputs_of", None, "inputs")
    replay = PhaseGraphs.replay

    def replayed(*given: Any) -> Any:
        mark("launched")
        text = "".join(_waiting)
        _waiting.clear()
        os.write(file, text.encode())
        return replay(*given)

    PhaseGraphs.replay = replayed  # type: ignore[method-assign]
