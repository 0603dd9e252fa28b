"""What captures and their self-check cost, estimated before any ran: bytes and seconds, hence the start budget.

An estimate never falls when a plan gets weaker, so that a weaker policy never keeps a longer ladder. Sources, all
on one NVIDIA H200, 50 prefill sizes up to 4096 tokens, 2026-11-21: breakable graphs of Qwen3-8B took 0.80 GB and
5.84 s, of Qwen3-0.6B 0.45 GB and 3.79 s; piecewise graphs the same memory and 18.08 s and 14.75 s. The activations of
one layer at 4096 tokens account for 0.44 and 0.11 GB of it, the rest is 0.2 MB for each segment of each size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from graphpod_policy.cost.selfcheck import checked_rows
from graphpod_policy.enums import CompileMode, Device, Phase, Policy
from graphpod_policy.facts import ModelFacts
from graphpod_policy.features import Features
from graphpod_policy.ladder.ladder import Ladder
from graphpod_policy.model.stages import stage_layers

UNKNOWN_MODEL: dict[Device, ModelFacts] = {
    Device.Cuda: ModelFacts("Qwen3ForCausalLM", 36, 4096, 12288, 32, 8, 128, 151936),
    Device.Cpu: ModelFacts("LlamaForCausalLM", 30, 576, 1536, 9, 3, 64, 49152),
}
"""What is assumed before the model is known: 8 billion weights on a GPU, 135 million on a CPU."""

SEGMENT_BYTES = 250_000
"""Driver memory of one captured segment on a GPU."""
RECORDED_LAYER_BYTES = 100_000
"""Host memory of one recorded layer (operators, arguments, views); assumed, not measured."""

LAYER_SECONDS: dict[Policy, float] = {Policy.Full: 0.0033, Policy.Breakable: 0.0033, Policy.Piecewise: 0.0105}
"""Seconds for one layer of one size on a GPU: warm-up, capture and, for Piecewise, its share of the tracing."""
ROW_SECONDS = 0.018
"""Seconds for one padded row of a ladder of a model of 135 million weights on two shared CPU cores (42.0 s for 2287
rows, their self-check included: generous for captures alone)."""
CHECK_ROW_SECONDS = 0.0085
"""Seconds for one row of one pass of the same model's self-check on one core. SmolLM2 in float32, processor time, torch
2.13, 2026-11-23: 8.6 ms a row for prefill sizes 4 to 64 (730 rows), 4.4 ms for 4 to 256 (6546 rows), 31 ms for the few
rows of decode (119). Qwen2.5-1.5B took 1104 s on two shared cores for 6665 rows, 14.5 ms for 135 million weights.
"""
CHECK_LAYER_SECONDS = 0.0023
"""Seconds for one layer of one size on a GPU (4.8 s for 58 sizes of 36 layers of Qwen3-8B, 1.6 s for 28 layers of
Qwen3-0.6B, one H200)."""
COMPILE_SECONDS: dict[CompileMode, int] = {CompileMode.Nothing: 0, CompileMode.Inductor: 15, CompileMode.Autotune: 145}
"""Seconds with a cold compile cache: up to eight kernels of 1.6 s, and up to four tuned sizes of 13 to 32 s."""

IMPORT_SECONDS = 120
"""Ceiling for interpreter, torch and what is not weights."""
LOAD_BYTES_PER_SECOND = 1_000_000_000
"""Slowest reading of weights, for each GPU, that is not called stuck."""
LARGEST_GPU_BYTES = 180 << 30
"""Weights are assumed to fill a GPU until the model is known."""
CEILING = 2
"""A capture may take this multiple of its estimate before the startup probe gives up."""


class Cost(NamedTuple):
    """An estimate: bytes held after capture, and seconds that capture and self-check take."""

    bytes: int
    seconds: float
    check_seconds: float = 0.0


NOTHING = Cost(0, 0.0)


@dataclass(frozen=True, slots=True)
class Budget:
    """Ceilings in seconds: `capture_seconds` for the captures of both phases, `check_seconds` for their self-check,
    `start_seconds` from process start to Ready. A start that is slower is stopped by the startup probe.
    """

    capture_seconds: int
    start_seconds: int
    check_seconds: int = 0


def size_cost(phase: Phase, policy: Policy, size: int, features: Features, model: ModelFacts | None) -> Cost:
    """One more size on a ladder: what it adds besides the pool, which the largest size determines."""
    shape = model or UNKNOWN_MODEL[features.device]
    layers = _layers(shape, features)
    if features.device is Device.Cuda:
        return Cost(SEGMENT_BYTES * (layers + 1), LAYER_SECONDS[policy] * layers)
    seconds = ROW_SECONDS * _rows(phase, size, features) * _weight(shape)
    return Cost(RECORDED_LAYER_BYTES * layers, seconds)


def pool_bytes(phase: Phase, largest: int, features: Features, model: ModelFacts | None) -> int:
    """The pool that all sizes of a phase share: one layer's activations at the largest, and in decode the logits."""
    shape = model or UNKNOWN_MODEL[features.device]
    element = 2 if features.device is Device.Cuda else 4
    rows = _rows(phase, largest, features)
    wide = max(3 * -(-shape.intermediate // features.tensor), shape.expanded(-(-features.tensor // features.expert)))
    layer = rows * (4 * shape.hidden + wide) * element
    return layer + (rows * shape.vocab * 4 if phase is Phase.Decode else 0)


def ladder_costs(
    phase: Phase, policy: Policy, sizes: Ladder, features: Features, model: ModelFacts | None
) -> tuple[Cost, ...]:
    """What the first size costs, the first two, and so on to the whole ladder."""
    each = (size_cost(phase, policy, size, features, model) for size in sizes)
    return tuple(
        Cost(cost.bytes + pool_bytes(phase, size, features, model), cost.seconds)
        for size, cost in zip(sizes, accumulate(each, _sum), strict=True)
    )


def phase_cost(phase: Phase, policy: Policy, sizes: Ladder, features: Features, model: ModelFacts | None) -> Cost:
    """The whole ladder of one phase, and its self-check."""
    if policy is Policy.Disabled or not sizes:
        return NOTHING
    captures = ladder_costs(phase, policy, sizes, features, model)[-1]
    return captures._replace(check_seconds=check_seconds(phase, sizes, features, model))


def check_seconds(phase: Phase, sizes: Ladder, features: Features, model: ModelFacts | None) -> float:
    """Seconds of the self-check of a ladder: on a CPU by the rows it runs, on a GPU by graphs and layers."""
    shape = model or UNKNOWN_MODEL[features.device]
    if features.device is Device.Cuda:
        return CHECK_LAYER_SECONDS * _layers(shape, features) * len(sizes)
    return CHECK_ROW_SECONDS * _rows(phase, checked_rows(sizes), features) * _weight(shape)


def budget(costs: Mapping[Phase, Cost], compile: CompileMode, features: Features, model: ModelFacts | None) -> Budget:
    """The ceilings of a start of these `costs`. Decode is captured twice: once to measure, once to keep."""
    seconds = sum(cost.seconds for cost in costs.values())
    capture = max(1, ceil(CEILING * seconds + COMPILE_SECONDS[compile]))
    check = ceil(CEILING * sum(cost.check_seconds for cost in costs.values()))
    start = IMPORT_SECONDS + _load_seconds(features, model) + 2 * capture + check
    return Budget(capture_seconds=capture, start_seconds=start, check_seconds=check)


def _layers(shape: ModelFacts, features: Features) -> int:
    """Of the stage that has most."""
    return stage_layers(shape.layers, features.pipeline)[0]


def _sum(one: Cost, other: Cost) -> Cost:
    return Cost(one.bytes + other.bytes, one.seconds + other.seconds)


def _load_seconds(features: Features, model: ModelFacts | None) -> int:
    """Ceiling for reading the weights, each GPU its part; on a CPU an unknown model is part of IMPORT_SECONDS."""
    if model is not None:
        return ceil(model.params * 2 / max(1, features.gpus) / LOAD_BYTES_PER_SECOND)
    return 0 if features.device is Device.Cpu else ceil(LARGEST_GPU_BYTES / LOAD_BYTES_PER_SECOND)


def _rows(phase: Phase, size: int, features: Features) -> int:
    """Rows of a pass: a decode sequence has one for each token it verifies."""
    return size * features.verify_width if phase is Phase.Decode else size


def _weight(shape: ModelFacts) -> float:
    """How much slower one row is than with the model that ROW_SECONDS was measured on."""
    return max(1.0, shape.params / UNKNOWN_MODEL[Device.Cpu].params)
