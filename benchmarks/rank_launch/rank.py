"""The process of a rank that is not the first, with marks."""

import os
import sys
from typing import Any

from benchmarks.rank_launch.marks import AWAKE, RANKS, around, wrap_launch
from graphpod_policy import EngineConfig
from graphpod_runtime.engine.pulse import Pulse
from graphpod_runtime.engine.ranks import process
from graphpod_runtime.engine.ranks.meeting import Meeting


def _following(config: EngineConfig, meeting: Meeting, rank: int, pulse: Pulse) -> Any:
    from graphpod_runtime.engine.runner import Runner

    wrap_launch(rank)
    around(f"{RANKS}.rank_sockets", "decode_order", "came", "read", lambda given, found: _is_launch(found))
    launch = Runner.launch

    def begun(*given: Any) -> Any:
        from benchmarks.rank_launch.marks import mark

        mark("begun")
        return launch(*given)

    Runner.launch = begun  # type: ignore[method-assign]
    return process.following(config, meeting, rank, pulse)


def _is_launch(order: object) -> bool:
    return type(order).__name__ == "Launch"


if __name__ == "__main__":
    process.awake_seconds = lambda features: float(os.environ[AWAKE])  # no call in earlier commits
    sys.exit(process.main(make_ready=_following))
