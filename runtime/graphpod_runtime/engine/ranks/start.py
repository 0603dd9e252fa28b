"""A runner in this process, of one rank or with the processes of the others."""

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch.distributed as distributed

from graphpod_policy import Device, EngineConfig, ExitCode, Obstacle
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.known_model import require_start
from graphpod_runtime.distributed.parting import let_go
from graphpod_runtime.engine.ranks.leading import LeadingRunner
from graphpod_runtime.engine.ranks.others import CAUSE_SECONDS, LOOK_SECONDS, Others, Start
from graphpod_runtime.engine.ranks.stage_runner import FirstStage
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.device import require_gpus
from graphpod_runtime.wire.messages import Fatal
from graphpod_runtime.wire.report import Report
from graphpod_runtime.wire.socket import no_sockets, require_room

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
    when one of them has ended or stands still and this process goes on waiting for it. StartFailure where the ranks do
    not divide the model, or are more than the GPUs."""
    if config.features.ranks == 1:
        return Runner(config, report)
    if config.features.nodes > 1:
        what = f"spec.parallelism.nodes: several machines ({config.features.nodes}) are not built in Python"
        raise StartFailure.by(Obstacle.of(ExitCode.FeatureNotBuilt, what, "use graphpod-engine serve --nodes"))
    require_start(config)
    if config.features.device is Device.Cuda:
        require_gpus(config.features.ranks)
    _require_no_group(config.features.ranks)
    others = Others(config, _folder(), start, temporary=True)
    threading.Thread(target=_end_with, args=(others, ended), name="ranks-end", daemon=True).start()
    return leading(config, report, None, others)


def started_runner(config: EngineConfig, report: Callable[[Report], None]) -> Runner:
    """The same, Ready. A start that fails leaves no other rank, whoever holds its error, which holds the runner."""
    runner = runner_of(config, report)
    try:
        runner.start()
    except BaseException:
        let_others_leave(runner)
        raise
    return runner


def release(runner: Runner) -> None:
    """Ends what else runs for `runner`, which is used no more: threads of its host cache, and other ranks."""
    if runner.host_tier is not None:
        runner.host_tier.close()
    let_others_leave(runner)


def let_others_leave(runner: object) -> None:
    """Ends the other ranks of `runner`, if it has any, and the group of this process with them: errors of its passes
    may keep a runner alive."""
    if isinstance(runner, LeadingRunner):
        runner.leave()


def _require_no_group(ranks: int) -> None:
    """StartFailure where this process belongs to other ranks: torch has one group of all ranks in a process, and the
    end of a second engine would end the group of the first."""
    if distributed.is_initialized():
        what = f"an engine of {ranks} ranks: this process has a group of torch.distributed already"
        step = "close the other engine of several ranks, or start this one in a process of its own"
        raise StartFailure.by(Obstacle.of(ExitCode.SettingInvalid, what, step))


def _folder() -> Path:
    """A new one where ranks meet. StartFailure where no sockets can be in it."""
    made: Path | None = None
    try:
        made = Path(tempfile.mkdtemp(prefix="graphpod-ranks-"))
        require_room(made)
    except OSError as error:
        if made is not None:
            made.rmdir()
        raise StartFailure(ExitCode.SettingInvalid, no_sockets(error)) from error
    return made


def leading(
    config: EngineConfig, report: Callable[[Report], None], started_at: float | None, others: Others
) -> LeadingRunner:
    """The runner of the first rank; returns when all ranks have met."""
    kind = FirstStage if config.features.pipeline > 1 else LeadingRunner
    return kind(config, report, started_at, others)


def _end_with(others: Others, ended: Callable[[Fatal], None]) -> None:
    if (fatal := others.wait_for_trouble()) is None:
        return
    others.kill()
    others.remove_folder()
    # A collective over a network fails without them. One of a GPU's does not.
    if others.awaited:
        let_go(CAUSE_SECONDS)
    until = time.monotonic() + CAUSE_SECONDS
    while others.awaited and time.monotonic() < until:
        time.sleep(LOOK_SECONDS / 5)
    if others.awaited:
        ended(fatal)
