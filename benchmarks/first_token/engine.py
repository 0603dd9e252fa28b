"""An engine process with marks. A folder without weights gives a model with random ones."""

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.first_token.marks import wrap_engine, wrap_wire
from graphpod_policy import EngineConfig
from graphpod_runtime.engine.loop import Runner as Served
from graphpod_runtime.engine.process import main
from graphpod_runtime.wire.report import Report


def _runner(config: EngineConfig, report: Callable[[Report], None], began: float) -> Served:
    from graphpod_runtime.engine.runner import Runner
    from graphpod_runtime.models.loader import load_model
    from graphpod_runtime.models.random import random_model

    wrap_engine()
    weights = any(Path(config.model.path).glob("*.safetensors"))
    return Runner(config, report, began, load_model if weights else random_model)


if __name__ == "__main__":
    wrap_wire()
    sys.exit(main(make_runner=_runner))
