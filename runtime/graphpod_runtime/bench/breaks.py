"""What breaks cost: a Breakable graph compared with the same code captured as one graph, attention inside.

The second graph is no part of the engine: a prefill's attention was planned for one batch, so it can run that batch
only. It is captured here, replayed a few times and dropped. On a CPU attention enters the recording as one opaque call.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
from torch import Tensor

from graphpod_policy import Phase, Policy
from graphpod_runtime.base.opaque_call import OpaqueCall
from graphpod_runtime.bench.figures.result import BreakCost
from graphpod_runtime.bench.figures.workload import Workload
from graphpod_runtime.engine.capture.capturer import no_collector
from graphpod_runtime.engine.forward.inputs import dummy_inputs
from graphpod_runtime.engine.start.started import Started
from graphpod_runtime.graphs.capture_errors import CaptureSite
from graphpod_runtime.graphs.captured_graphs import FullGraph
from graphpod_runtime.graphs.full import capture_full

REPLAYS, SLOW_REPLAYS = 30, 5
"""Of each graph, in turns; fewer where one takes long."""
SLOW_SECONDS = 0.05


@torch.no_grad()
def break_costs(engine: Started, workload: Workload) -> Iterator[BreakCost]:
    """Of each measured size that a Breakable graph of its own runs. GraphError where the code cannot be one graph."""
    for phase, sizes in ((Phase.Prefill, workload.prefill_tokens), (Phase.Decode, workload.decode_batches)):
        graphs = engine.graphs.get(phase)
        if graphs is None or graphs.policy is not Policy.Breakable:
            continue
        for size in sizes:
            if size in graphs.sizes:
                yield _cost(engine, phase, size)


def _cost(engine: Started, phase: Phase, size: int) -> BreakCost:
    broken = engine.graphs[phase].graphs[size]
    whole = _whole(engine, phase, size)
    inputs = dummy_inputs(phase, size, engine.capturer.page_size, engine.device)

    def of_broken() -> float:
        engine.attention.plan(inputs)
        return _seconds(engine.device, lambda: broken.replay(size))

    def of_whole() -> float:
        _plan_whole(engine, phase, size)
        return _seconds(engine.device, lambda: whole.replay(size))

    of_broken(), of_whole()
    replays = REPLAYS if of_broken() < SLOW_SECONDS else SLOW_REPLAYS
    pairs = [(of_broken(), of_whole()) for _ in range(replays)]
    times = (median(column) for column in zip(*pairs, strict=True))
    return BreakCost(phase, size, broken.segments - 1, *times)


def _whole(engine: Started, phase: Phase, size: int) -> FullGraph:
    """The pass of `size` rows as one graph."""
    attend = engine.attention.run
    pool = engine.capturer.new_pool()

    def opaque(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        result: Tensor = OpaqueCall(partial(attend, layer))(q, k, v)
        return result

    code = engine.passes[phase].code(size)
    _plan_whole(engine, phase, size)
    code(attend)
    with pool.capturing(), no_collector():
        _plan_whole(engine, phase, size)
        return capture_full(code, CaptureSite(engine.capturer.model, phase.value, size), opaque, pool)


def _plan_whole(engine: Started, phase: Phase, size: int) -> None:
    """Attention for the one graph: in decode from static buffers, as a Full step; in prefill for this batch."""
    inputs = dummy_inputs(phase, size, engine.capturer.page_size, engine.device)
    if phase is Phase.Decode:
        engine.attention.plan_step(inputs, size)
    else:
        engine.attention.plan(inputs)


def _seconds(device: torch.device, work: Callable[[], object]) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
