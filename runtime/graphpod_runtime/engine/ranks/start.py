"""A runner in this process, of one rank or with the processes of the others."""

import logging
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from graphpod_policy import Device, EngineConfig, ExitCode, Obstacle
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.known_model import require_start
from graphpod_runtime.engine.ranks.leading import LeadingRunner
from graphpod_runtime.engine.ranks.others import Others, Start
from graphpod_runtime.engine.ranks.stage_runner import FirstStage
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.device import require_gpus
from graphpod_runtime.wire.messages import Fatal
from graphpod_runtime.wire.report import Report

log = logging.getLogger("graphpod.engine")


def end(fatal: Fatal) -> None:
    """Ends this process: its own pass waits in a collective for ever."""
    log.error("%s: %s", fatal.reason, fatal.message)
    os._exit(fatal.code)


def runner_of(
    config: EngineConfig,
    report: Callable[[Report], None],
    start: Start | None = None,
    ended: Callable[[Fatal], None] = end,
) -> Runner:
    """The runner of `config`, not started. `start`: how processes of other ranks begin; `ended` is called in a thread
    when one of them has ended or stands still. StartFailure where the ranks do not divide the model, or are more than
    the GPUs."""
    if config.features.ranks == 1:
        return Runner(config, report)
    if config.features.nodes > 1:
        what = f"spec.parallelism.nodes: several machines ({config.features.nodes}) are not built in Python"
        raise StartFailure.by(Obstacle.of(ExitCode.FeatureNotBuilt, what, "use graphpod-engine serve --nodes"))
    require_start(config)
    if config.features.device is Device.Cuda:
        require_gpus(config.features.ranks)
    others = Others(config, Path(tempfile.mkdtemp(prefix="graphpod-ranks-")), start, temporary=True)
    threading.Thread(target=_end_with, args=(others, ended), name="ranks-end", daemon=True).start()
    return leading(config, report, None, others)


def leading(
    config: EngineConfig, report: Callable[[Report], None], started_at: float | None, others: Others
) -> LeadingRunner:
    """The runner of the first rank; returns when all ranks have met."""
    kind = FirstStage if config.features.pipeline > 1 else LeadingRunner
    return kind(config, report, started_at, others)


def _end_with(others: Others, ended: Callable[[Fatal], None]) -> None:
    if (fatal := others.wait_for_trouble()) is not None:
        others.kill()
        others.remove_folder()
        ended(fatal)
