"""The engine process: heart, start, loop, last words.

The front starts it with a pipe on its standard input and never writes to it: the pipe's end means that the front is
gone, and the engine goes with it. Heartbeats come from a thread, so they go on while torch is imported or a graph is
captured; what they carry is the time of the last *progress*, so a heart that beats does not hide a loop that is stuck.
"""

import argparse
import faulthandler
import gc
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpod_policy import Device, EngineConfig, ExitCode, config_hash
from graphpod_policy.start.flags import in_own_words
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.files.model_sample import sample_of
from graphpod_runtime.base.leader import leader_of, ports_of
from graphpod_runtime.base.process.signals import leave_ending_to_the_parent
from graphpod_runtime.compiled.bytecode import forget_bytecode
from graphpod_runtime.engine import before_torch
from graphpod_runtime.engine.loop import Loop, Runner
from graphpod_runtime.engine.pulse import Pulse
from graphpod_runtime.engine.ranks.meeting import ports_behind
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.ranks.roster import Roster, listening
from graphpod_runtime.engine.start.collector import PausedCollector
from graphpod_runtime.engine.start.start_log import StartLog
from graphpod_runtime.grammar.vocabulary import GrammarsUnavailable
from graphpod_runtime.wire.messages import CounterSnapshot, Fatal, Warmup
from graphpod_runtime.wire.socket import BEAT, WIRE, EngineEnd
from graphpod_runtime.wire.wakefulness import awake_seconds

if TYPE_CHECKING:
    from graphpod_runtime.wire.report import Report

log = logging.getLogger("graphpod.engine")

MakeRunner = Callable[[EngineConfig, "Callable[[Report], None]", float], Runner]


def main(arguments: list[str] | None = None, make_runner: MakeRunner | None = None) -> int:
    """Runs one engine to its end; returns its exit code. `make_runner` is for tests."""
    began = time.time()
    faulthandler.enable()  # a SIGABRT of the watchdog prints every stack
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    leave_ending_to_the_parent()
    parser = argparse.ArgumentParser(prog="graphpod-engine-process")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--wire", type=Path, required=True, help="folder of the two sockets")
    options = parser.parse_args(arguments)

    pulse = Pulse()
    _start_thread("front-watch", partial(_leave_with_the_front, options.wire))
    link = EngineEnd(options.wire, WIRE)
    others: Others | None = None
    started: list[Others] = []
    try:
        config = EngineConfig.parse(options.config.read_bytes())
        before_torch.begin(config)
        _start_thread("heart", partial(_beat, options.wire, pulse, started))
        if config.features.ranks > 1:
            others = Others(config, options.wire, roster=_roster(config, pulse))
            started.append(others)
        rouse = others.rouse if others is not None else lambda: None
        _serve(config, link, pulse, make_runner or partial(_real_runner, others), began, rouse)
    except StartFailure as failure:
        link.send([Fatal(failure.reason, in_own_words(failure.message, os.environ), failure.code)])
        return failure.code
    except Exception as error:
        log.exception("the engine cannot go on")
        forget_bytecode(error)
        fatal = Fatal(ExitCode.EngineDied.name, f"{type(error).__name__}: {error}", ExitCode.EngineDied)
        if others is not None:
            fatal = others.cause() or fatal
        link.send([fatal])
        if others is not None:
            others.abandon()
        return fatal.code
    finally:
        link.close()
    return ExitCode.Drained


def _serve(
    config: EngineConfig,
    link: EngineEnd,
    pulse: Pulse,
    make_runner: MakeRunner,
    began: float,
    rouse: Callable[[], None],
) -> None:
    start_log, collector = StartLog(lambda line: log.info("%s", in_own_words(line, os.environ))), PausedCollector()

    def report(report: "Report") -> None:
        collector.note(report.stages)
        pulse.beat(report.state.value)
        start_log.note(report)
        link.send([CounterSnapshot(runner.counters.changes()), Warmup(report.as_dict())])

    runner = make_runner(config, report, began)
    runner.start()
    collector.resume()
    # What the start made lives as long as the process: the collector need not walk it again.
    gc.collect()
    gc.freeze()
    cuda = config.features.device is Device.Cuda
    awake = awake_seconds(config.features)
    # What a stage computes says nothing of when the pipeline is free.
    runs_behind = cuda and config.features.pipeline == 1
    beat, rehearse = partial(pulse.beat, "Ready"), _rehearsal(runner) if awake else lambda: None
    loop = Loop(runner, link, beat, awake, runs_behind=runs_behind, rouse=rouse, rehearse=rehearse)
    try:
        loop.grammars.compiler.prepare()
    except GrammarsUnavailable as error:
        log.warning("requests with a grammar are refused: %s", error)
    loop.run()


def _rehearsal(runner: Any) -> Callable[[], None]:
    """Of a runner with a device."""
    from graphpod_runtime.engine.forward.unread_inputs import rehearse

    return partial(rehearse, runner.config.page_size, runner.engine.device)


def _real_runner(
    others: Others | None, config: EngineConfig, report: "Callable[[Report], None]", began: float
) -> Runner:
    # These import torch: the heart beats already.
    if others is not None:
        from graphpod_runtime.engine.ranks.start import leading

        return leading(config, report, began, others)
    from graphpod_runtime.engine.runner import Runner as TorchRunner

    return TorchRunner(config, report, began)


def _roster(config: EngineConfig, pulse: Pulse) -> Roster | None:
    """The other machines, once all of them have come; None where the engine has one machine. StartFailure without an
    address, or where one of its ports is taken."""
    if (leader := leader_of(config.features, os.environ)) is None:
        return None
    nodes, ranks = config.features.nodes, config.features.ranks
    try:
        for port in ports_behind(leader, ranks, config.features.ranks_of_node):
            listening(port).close()  # used once all have come
        port = leader.port
        mark, model = config_hash(config.canonical()), sample_of(Path(config.model.path))
        roster = Roster(leader, nodes, ranks, mark, model)
    except OSError as error:
        what = f"--leader {leader}: port {port} cannot be listened on: {os.strerror(error.errno or 0)}"
        what += f"; choose a port with {ports_of(ranks) - 1} free ones behind it"
        raise StartFailure(ExitCode.SettingInvalid, what) from error
    said: list[int] = []

    def waiting(missing: list[int]) -> None:
        pulse.beat("Import")  # a machine that is not there yet is no fault of this one
        if missing != said:
            said[:] = missing
            log.info("waiting for machines %s of %d at %s", ", ".join(map(str, missing)), nodes, leader)

    roster.wait(waiting)
    return roster


def _beat(folder: Path, pulse: Pulse, started: list[Others]) -> None:
    """Beats, until one of the others that have `started` is in trouble: this rank may wait for it in a collective and
    cannot end by itself."""
    end = EngineEnd(folder, BEAT)
    while not started or started[0].trouble is None:
        end.send([pulse.heartbeat()])
        pulse.wait()
    if (fatal := started[0].wait_for_trouble()) is not None:
        end.send([fatal])
        end.close()
        started[0].kill()
        os._exit(fatal.code)


def _leave_with_the_front(wire: Path) -> None:
    """Ends the process when the front has gone, and removes the wire's folder, which a killed front leaves."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    shutil.rmtree(wire, ignore_errors=True)
    os._exit(ExitCode.Drained)


def _start_thread(name: str, target: Callable[[], None]) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
