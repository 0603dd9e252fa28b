"""The process of a rank that is not the first: heart, start, orders, last words."""

import argparse
import faulthandler
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from graphpod_policy import EngineConfig, ExitCode
from graphpod_runtime.base.failure import RankFailed, StartFailure
from graphpod_runtime.base.group_key import GROUP_KEY
from graphpod_runtime.base.leader import Leader
from graphpod_runtime.base.process.signals import leave_ending_to_the_parent
from graphpod_runtime.compiled.bytecode import forget_bytecode, keep_bytecode
from graphpod_runtime.engine.pulse import Pulse
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import Beat, LastWords, Order
from graphpod_runtime.engine.ranks.rank_sockets import Orders, Voice
from graphpod_runtime.wire.messages import Fatal
from graphpod_runtime.wire.wakefulness import awake_seconds

log = logging.getLogger("graphpod.engine")

Obey = Callable[[Order], bool]
MakeReady = Callable[[EngineConfig, Meeting, int, Pulse], Obey]
"""(config, meeting, rank, pulse) -> what obeys orders, of a rank that is Ready."""


def main(arguments: list[str] | None = None, make_ready: MakeReady | None = None) -> int:
    """Runs one rank to its end; returns its exit code. `make_ready` is for tests."""
    faulthandler.enable()
    leave_ending_to_the_parent()
    parser = argparse.ArgumentParser(prog="graphpod-rank")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where ranks meet")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--leader", type=Leader.parse, help="the machine of the first rank, where there are several")
    parser.add_argument("--log-level", type=int, default=logging.INFO)
    options = parser.parse_args(arguments)
    # All ranks of a pod write into one log. Lines of the first rank are those of the engine.
    written = f"%(asctime)s %(name)s %(levelname)s rank {options.rank}: %(message)s"
    logging.basicConfig(level=options.log_level, format=written)
    threading.Thread(target=_leave_with_the_first, name="first-rank-watch", daemon=True).start()
    config = EngineConfig.parse(options.config.read_bytes())
    keep_bytecode()
    leader = options.leader and replace(options.leader, key=os.environ.get(GROUP_KEY, ""))
    meeting = Meeting(options.folder, leader, config.features.ranks // config.features.nodes)
    return run(config, meeting, options.rank, make_ready or following)


def run(config: EngineConfig, meeting: Meeting, rank: int, make_ready: MakeReady) -> int:
    """The rank from its start to its end; its exit code."""
    pulse = Pulse()
    threading.Thread(target=_beat, args=(meeting, rank, pulse), name="heart", daemon=True).start()
    try:
        # The first rank finds it connected when both are Ready.
        with closing(Orders(meeting, rank, awake_seconds(config.features))) as orders:
            obey = make_ready(config, meeting, rank, pulse)
            pulse.beat("Ready")
            while obey(orders.next()):
                pulse.beat("Ready")
    except StartFailure as failure:
        fatal = Fatal(failure.reason, failure.message, failure.code)
        return _ends(meeting, LastWords(rank, fatal, witness=isinstance(failure, RankFailed)))
    except Exception as error:
        log.exception("it cannot go on")
        forget_bytecode(error)
        message = f"{type(error).__name__}: {error}"
        fatal = Fatal(ExitCode.EngineDied.name, message, ExitCode.EngineDied)
        return _ends(meeting, LastWords(rank, fatal, witness=True))
    return ExitCode.Drained


def following(config: EngineConfig, meeting: Meeting, rank: int, pulse: Pulse) -> Obey:
    """Of the runner of this rank, on its own GPU."""
    # These import torch: the heart beats already.
    from graphpod_runtime.distributed.connection import connect
    from graphpod_runtime.distributed.pipeline import Position
    from graphpod_runtime.engine.ranks.copies import FollowingCopies
    from graphpod_runtime.engine.ranks.following import Following
    from graphpod_runtime.engine.ranks.stage_runner import StageRunner
    from graphpod_runtime.engine.runner import Runner
    from graphpod_runtime.engine.start.device import device_of
    from graphpod_runtime.models.stage import loader_of

    place, began = Position(rank, config.features.tensor, config.features.pipeline), time.time()
    ranks, pipeline = connect(place, meeting.collectives, device_of(config.features, rank))
    kind = Runner
    if pipeline is not None:
        pulse.waits_for, kind = (lambda: pipeline.waits_for), StageRunner
    load = loader_of(place, pipeline, config.features.expert)
    runner = kind(config, lambda report: pulse.beat(report.doing), began, load, ranks)
    runner.start()
    gc.collect()
    gc.freeze()
    if (tier := runner.host_tier) is None:
        return Following(runner).obey
    voice, pulse.host_pool = Voice(meeting, rank), lambda: (tier.copies.slots, tier.copies.failed_allocations)
    return Following(runner, FollowingCopies(tier, config.page_size, rank, voice.say)).obey


def _beat(meeting: Meeting, rank: int, pulse: Pulse) -> None:
    voice = Voice(meeting, rank)
    while True:
        voice.say(Beat(rank, pulse.heartbeat(), pulse.waits_for(), *pulse.host_pool()))
        pulse.wait()


def _ends(meeting: Meeting, words: LastWords) -> int:
    voice = Voice(meeting, words.rank)
    voice.say(words)
    voice.close()
    return words.fatal.code


def _leave_with_the_first() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(ExitCode.Drained)


if __name__ == "__main__":
    sys.exit(main())
