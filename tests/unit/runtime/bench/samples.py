"""A made-up result with everything in it: what table and picture are drawn from."""

from graphpod_policy import CompileMode, Phase, Policy
from graphpod_runtime.bench.figures.floors import ModelFacts, Rates
from graphpod_runtime.bench.figures.meter import Samples
from graphpod_runtime.bench.figures.result import (
    BreakCost,
    Cache,
    Capture,
    Found,
    Left,
    Machine,
    Result,
    SizeCost,
    Start,
    result_of,
)
from graphpod_runtime.bench.figures.variants import VARIANTS, Variant
from graphpod_runtime.bench.figures.workload import Workload

MODEL = ModelFacts(
    name="made-up-8b",
    dtype="bfloat16",
    random=True,
    vocab=1000,
    parameters=8_200_000_000,
    body=7_000_000_000,
    head=600_000_000,
    weight_bytes=2,
    kv_bytes=147_456,
)
RATES = Rates(copy_bytes=4e12, matmul_operations=700e12)
WORK = Workload((64, 256, 512, 1024, 2048), (1, 8, 32), max_model_len=4096, prefill_chunk=4096)
MACHINE = Machine(
    device="Made-up GPU",
    driver="1.2",
    cpu="Made-up CPU",
    cores=16,
    threads=16,
    memory_bytes=140 << 30,
    system="Linux",
    versions={"graphpod": "0.1.0", "torch": "2.11.0"},
)
LADDER = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
STAGES = ("Import", "Load", "Compile", "PrefillCapture", "DecodeMeasure", "KvSizing", "DecodeCapture", "SelfCheck")

SLOWER = {
    "eager": 4.0,
    "breakable": 2.0,
    "piecewise": 2.2,
    "breakable-inductor": 1.5,
    "piecewise-inductor": 1.6,
    "eager-inductor": 5.0,
}
"""Times the floor of the smallest prefill, and of every decode step."""


def samples(slower: float) -> Samples:
    """Three rounds of a subject that takes `slower` ms, and 20 µs for every token; a decode step takes `slower` ms."""
    prefill = {tokens: [slower * 3.8e-3 + tokens * 20e-6] * 3 for tokens in WORK.prefill_tokens}
    short = {batch: [0.05 + WORK.short * slower * 4e-3] * 3 for batch in WORK.decode_batches}
    long = {batch: [0.05 + WORK.long * slower * 4e-3] * 3 for batch in WORK.decode_batches}
    return Samples(prefill, short, long)


def capture(policy: Policy, sizes: tuple[int, ...], segments: int) -> Capture:
    """Graphs of `sizes`, each with a cost of its own."""
    if policy is Policy.Disabled:
        return Capture(policy, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, "NotRun")
    costs = tuple(
        SizeCost(size, 0.012 + size * 4e-6, 200_000_000 if size == max(sizes) else 0, 4_000_000)
        for size in reversed(sizes)
    )
    return Capture(
        policy=policy,
        planned=len(sizes),
        captured=len(sizes),
        segments=segments,
        pool_bytes=sum(cost.pool_bytes for cost in costs),
        driver_bytes=sum(cost.driver_bytes for cost in costs),
        seconds=sum(cost.seconds for cost in costs) + 0.3,
        prepare_seconds=0.1,
        warm_seconds=0.2,
        self_check="Passed",
        by_size=costs,
    )


def start(variant: Variant, cache: Cache) -> Start:
    """Stages of different lengths; longer where nothing is cached."""
    slow = {"Import": 3.0, "Compile": 12.0 if cache is Cache.Cold else 2.0, "SelfCheck": 3.0}
    stages = {stage: slow.get(stage, 0.4) for stage in STAGES}
    if variant.compile is CompileMode.Nothing:
        del stages["Compile"]
    return Start(
        cache=cache,
        seconds=sum(stages.values()) + 0.3,
        stages=stages,
        phases={
            Phase.Prefill: capture(variant.prefill, LADDER, 37),
            Phase.Decode: capture(variant.decode, (1, 2, 4, 8, 16, 32), 1 if variant.decode is Policy.Full else 37),
        },
        attention="FlashInferAttention",
        capture_clock={"buffers": 0.5, "trace": 0.0, "warm-up": 0.25, "graphs": 1.5},
    )


def found(name: str) -> Found:
    """What a variant's processes would have told."""
    variant = VARIANTS[name]
    caches = (Cache.Cold, Cache.Warm) if variant.compiled else (Cache.Unused,)
    breaks = tuple(
        BreakCost(Phase.Prefill, tokens, 36, broken=7.7e-3 + tokens * 1e-6, whole=7.5e-3)
        for tokens in WORK.prefill_tokens
        if variant.prefill is Policy.Breakable
    )
    return Found(
        variant=variant,
        starts=tuple(start(variant, cache) for cache in caches),
        samples=samples(SLOWER[name]),
        wire=samples(SLOWER[name] + 0.1),
        breaks=breaks,
    )


def made_up(*names: str, left_out: tuple[Left, ...] = (), changed: tuple[Found, ...] = ()) -> Result:
    """A result of the variants of these names (default: all) and of `changed`."""
    return result_of(
        "graphpod-engine bench graphs --random made-up-8b",
        "2026-01-02T03:04:05+00:00",
        100.0,
        MACHINE,
        MODEL,
        WORK,
        RATES,
        [*(found(name) for name in names or VARIANTS), *changed],
        left_out,
    )
