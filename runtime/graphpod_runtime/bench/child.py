"""A process of the benchmark: a survey, or one engine that is asked for rounds. Started by `process`."""

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from graphpod_policy import Phase, Policy
from graphpod_runtime.base.errors import GraphError, ModelInvalid
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.bench.breaks import break_costs
from graphpod_runtime.bench.figures.meter import Generate, Meter
from graphpod_runtime.bench.figures.result import Capture, SizeCost, Start
from graphpod_runtime.bench.machine import machine, model_facts, rates
from graphpod_runtime.bench.messages import (
    Breaks,
    Failed,
    Message,
    Note,
    Order,
    Ready,
    Round,
    Serve,
    Served,
    Survey,
    Surveyed,
    Task,
    Transformers,
    encode,
    folder_of,
    order_of,
)
from graphpod_runtime.engine.loop import Loop
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.start_log import StartLog
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.random import random_model
from graphpod_runtime.wire.report import PhaseReport, Report, State
from graphpod_runtime.wire.socket import WIRE, EngineEnd

Tell = Callable[[Message], None]


def main() -> int:
    """Does what the only argument says; 1 after Failed. What else is raised ends the process with its traceback."""
    tell = _teller()
    try:
        order = order_of(sys.argv[1])
        if order.threads is not None:
            torch.set_num_threads(order.threads)
        match order:
            case Survey():
                facts = model_facts(folder_of(order), order.dtype, random=order.random)
                tell(Surveyed(machine(order.device), facts, rates(order.device, order.dtype)))
            case Serve():
                _engine(order, tell)
            case Transformers():
                _reference(order, tell)
    except (StartFailure, ModelInvalid) as error:
        tell(Failed(str(error)))
        return 1
    return 0


def _teller() -> Tell:
    """Writes to what was standard output; whatever libraries print there goes to standard error from now on."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(message: Message) -> None:
        print(encode(message), file=lines, flush=True)

    return tell


def _engine(order: Serve, tell: Tell) -> None:
    # Of a stage without work there is nothing to tell.
    start_log = StartLog(lambda line: None if line.endswith(": 0.0 s") else tell(Note(line)))

    def report(report: Report) -> None:
        if report.state in (State.Capturing, State.SelfChecking):
            tell(Note(_passing(report), passing=True))
        start_log.note(report)

    load = random_model if order.random else load_model
    runner = Runner(order.engine(), report, order.began, load=load)
    runner.start()
    gc.collect()
    gc.freeze()
    start = _start(order, runner)

    def run(prompts: list[list[int]], new: int) -> object:
        return generate(runner, prompts, new, ignore_eos=True)

    _obey(order, tell, run, runner, start)


def _reference(order: Transformers, tell: Tell) -> None:
    from graphpod_runtime.bench.reference import transformers_generate

    run = transformers_generate(folder_of(order), order.dtype, order.device, random=order.random)
    _obey(order, tell, run, None, None)


def _obey(order: Order, tell: Tell, run: Generate, runner: Runner | None, start: Start | None) -> None:
    """Warms up, says Ready, then does one task for each line of standard input, until its end."""
    meter = Meter(run, order.workload, read_shape(folder_of(order)).vocab)
    meter.warm()
    tell(Ready(start))
    for line in sys.stdin:
        match Task(line.strip()):
            case Task.Round:
                samples = meter.round()
                tell(Round(samples, 0 if runner is None else _fallbacks(runner)))
            case Task.Breaks if runner is not None:
                tell(_breaks(order, runner, tell))
            case Task.Wire if runner is not None:
                link = EngineEnd(Path(sys.stdin.readline().strip()), WIRE)
                Loop(runner, link, lambda: None).run()
                link.close()
                tell(Served())
            case task:
                raise ValueError(f"a reference has no {task}")


def _breaks(order: Order, runner: Runner, tell: Tell) -> Breaks:
    costs = []
    try:
        for cost in break_costs(runner.engine, order.workload):
            tell(Note(f"break costs: {cost.phase} {cost.size}", passing=True))
            costs.append(cost)
    except GraphError as error:
        return Breaks(tuple(costs), str(error))
    return Breaks(tuple(costs), None)


def _start(order: Serve, runner: Runner) -> Start:
    report = runner.report
    assert report.attention is not None, "a Ready engine has it"
    return Start(
        cache=order.cache,
        seconds=time.time() - order.began,
        stages={stage.value: seconds for stage, seconds in report.stages.items()},
        phases={phase: _capture(part) for phase, part in report.phases.items()},
        attention=report.attention.kernels,
        capture_clock=report.capture_clock(),
        decisions=tuple(f"{decision.rule}: {decision.because}" for decision in report.decisions),
    )


def _capture(part: PhaseReport) -> Capture:
    return Capture(
        policy=part.effective,
        planned=part.planned_sizes,
        captured=part.captured,
        segments=part.segments,
        pool_bytes=part.pool_bytes,
        driver_bytes=part.driver_bytes,
        seconds=part.capture_seconds,
        prepare_seconds=part.prepare_seconds,
        warm_seconds=part.warm_seconds,
        self_check=part.self_check.value,
        by_size=tuple(SizeCost(cost.size, cost.seconds, cost.pool_bytes, cost.driver_bytes) for cost in part.costs),
    )


def _passing(report: Report) -> str:
    return ", ".join(
        f"{phase} {part.captured}/{part.planned_sizes}"
        for phase, part in report.phases.items()
        if part.effective is not Policy.Disabled
    )


def _fallbacks(runner: Runner) -> int:
    """Of phases that have graphs."""
    return sum(
        int(runner.counters.value("graphpod_graph_fallbacks_total", phase=phase.value))
        for phase in Phase
        if runner.report.phases[phase].effective is not Policy.Disabled
    )


if __name__ == "__main__":
    sys.exit(main())
