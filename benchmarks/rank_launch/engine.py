"""The engine process of the first rank, with marks. GRAPHPOD_RANK_AWAKE: seconds that ranks stay awake without work."""

import os
import sys
from typing import Any

from benchmarks.rank_launch.marks import AWAKE, ENGINE, RANKS, around, wrap_launch
from graphpod_policy import EngineConfig
from graphpod_runtime.engine import process
from graphpod_runtime.engine.ranks import others


def _named(kind: str) -> Any:
    """Whether one of the values that are given or found is of this kind."""
    return lambda given, found: any(type(one).__name__ == kind for one in (*given, *(found or ())))


def _runner(config: EngineConfig, report: Any, began: float) -> Any:
    from graphpod_runtime.engine.ranks.others import Others
    from graphpod_runtime.engine.ranks.start import leading
    from graphpod_runtime.engine.runner import Runner

    wrap_launch(0)
    around("graphpod_runtime.wire.socket", "decode_commands", "came", None, _named("Submit"))
    around(f"{ENGINE}.schedule.scheduler", "Scheduler.submit", None, "admitted")
    around(f"{ENGINE}.schedule.scheduler", "Scheduler.next", None, "planned", lambda given, batch: batch is not None)
    around(f"{RANKS}.others", "Others.send", None, "ordered", lambda given, found: _is_launch(given))
    started = [one for one in _made if isinstance(one, Others)]
    return leading(config, report, began, started[0]) if started else Runner(config, report, began)


def _is_launch(given: Any) -> bool:
    return type(given[1]).__name__ == "Launch"


_made: list[Any] = []


def _noted(*given: Any, **named: Any) -> Any:
    _made.append(others.Others(*given, **named))
    return _made[-1]


def _awake(*given: Any, **named: Any) -> Any:
    """The loop of a machine with processors to spare, whatever this one is."""
    return _loop(*given[:3], float(os.environ[AWAKE]), **named)


if __name__ == "__main__":
    others.awake_seconds = lambda features: float(os.environ[AWAKE])  # no call in earlier commits
    process.awake_seconds = others.awake_seconds  # so that the loop rehearses, too
    others.COMMAND = (sys.executable, "-m", "benchmarks.rank_launch.rank")
    _loop, process.Loop, process.Others = process.Loop, _awake, _noted  # type: ignore[misc,assignment]
    sys.exit(process.main(make_runner=_runner))
