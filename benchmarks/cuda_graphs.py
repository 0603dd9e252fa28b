"""Prefill, decode, capture and start on one GPU: graphs against eager in one process each, beside the physical floor.

    python -m benchmarks.cuda_graphs --out benchmarks/results/cuda_graphs.json

Weights are random (`benchmarks/shapes`). Prefill is one pass over one request, host receives its token; decode is
tokens per second by difference of two generations of unique 64-token prompts: batch · 128 / (t(136 new) - t(8 new)).
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from graphpod_policy import (
    CompileMode,
    Device,
    EngineConfig,
    Features,
    GraphRequest,
    ModelConfig,
    Policy,
    __version__,
    resolve,
)
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.models.random import random_model

SHAPES = Path(__file__).parent / "shapes"
PREFILL_TOKENS = (64, 256, 512, 1024, 2048)
DECODE_BATCHES = (1, 8, 32)
ROUNDS = 15
COPY_BYTES = 4 << 30

NOT, INDUCTOR = CompileMode.Nothing, CompileMode.Inductor
VARIANTS = {
    "eager": (Policy.Disabled, Policy.Disabled, NOT),
    "graphs": (Policy.Breakable, Policy.Full, NOT),
    "graphs, compiled": (Policy.Breakable, Policy.Full, INDUCTOR),
    "breakable decode, compiled": (Policy.Disabled, Policy.Breakable, INDUCTOR),
}


def copy_rate() -> float:
    """Bytes read and written per second by a copy on the device: the measure of what memory can do."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(5):
        target.copy_(source)
    torch.cuda.synchronize()
    return 5 * 2 * COPY_BYTES / (time.perf_counter() - began)


def runner_of(folder: Path, prefill: Policy, decode: Policy, compile: CompileMode) -> Runner:
    """A Ready runner with random weights."""
    features = Features(device=Device.Cuda, max_model_len=4096, max_batch=32, prefill_chunk=4096)
    request = GraphRequest(prefill=prefill, decode=decode, compile=compile)
    config = EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(folder.name, str(folder)),
        dtype="bfloat16",
    )
    runner = Runner(config, lambda report: None, load=random_model)
    runner.start()
    return runner


def prompt(tokens: int, salt: int) -> list[int]:
    """Token ids that differ for each `salt`."""
    return [(salt * 7919 + index * 104729) % 150_000 + 100 for index in range(tokens)]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def prefill_ms(runner: Runner, tokens: int) -> float:
    """Median time of a pass over one request of `tokens`, its first token on the host."""
    times = [seconds(lambda salt=salt: generate(runner, [prompt(tokens, salt)], 1)) for salt in range(ROUNDS + 3)]
    return 1000 * statistics.median(times[3:])


def decode_rate(runner: Runner, batch: int) -> float:
    prompts = [prompt(64, salt) for salt in range(batch)]
    short, long = (
        min(seconds(lambda new=new: generate(runner, prompts, new, ignore_eos=True)) for _ in range(3))
        for new in (8, 136)
    )
    return batch * 128 / (long - short)


def weight_bytes(runner: Runner) -> int:
    """What a decode step must read: all but the embedding table, which a tied head reads as the head."""
    model = runner._engine.model
    total = sum(p.numel() * p.element_size() for p in model.module().parameters())
    embedding = model.shape.vocab * model.shape.hidden * 2
    return total if model.shape.tied else total - embedding


def measure(folder: Path, prefill: Policy, decode: Policy, compile: CompileMode) -> dict[str, object]:
    began = time.perf_counter()
    runner = runner_of(folder, prefill, decode, compile)
    start = time.perf_counter() - began
    report = runner.report
    found: dict[str, object] = {
        "start_s": round(start, 2),
        "stages_s": {stage.value: round(took, 3) for stage, took in report.stages.items()},
        "attention": type(runner._engine.attention).__name__,
        "phases": {
            phase.value: {
                "effective": part.effective.value,
                "captured": part.captured,
                "segments": part.segments,
                "pool_bytes": part.pool_bytes,
                "driver_bytes": part.driver_bytes,
                "capture_s": round(part.capture_seconds, 3),
                "self_check": part.self_check.value,
            }
            for phase, part in report.phases.items()
        },
        "decisions": [decision.rule + ": " + decision.because for decision in report.decisions],
        "prefill_ms": {str(tokens): round(prefill_ms(runner, tokens), 3) for tokens in PREFILL_TOKENS},
        "decode_tokens_per_s": {str(batch): round(decode_rate(runner, batch), 1) for batch in DECODE_BATCHES},
        "weight_bytes": weight_bytes(runner),
        "fallbacks": runner.counters.value("graphpod_graph_fallbacks_total"),
    }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shapes", nargs="*", default=["qwen3-0.6b", "qwen3-8b"])
    options = parser.parse_args()
    rate = copy_rate()
    result: dict[str, object] = {
        "command": " ".join(["python", "-m", "benchmarks.cuda_graphs", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"graphpod": __version__, "torch": torch.__version__, "device": torch.cuda.get_device_name()},
        "copy_bytes_per_s": round(rate),
        "models": {},
    }
    for shape in options.shapes:
        rows: dict[str, object] = {}
        result["models"][shape] = rows  # type: ignore[index]
        for variant, policies in VARIANTS.items():
            began = time.perf_counter()
            rows[variant] = measure(SHAPES / shape, *policies)
            torch.cuda.empty_cache()
            print(f"{shape} {variant}: {time.perf_counter() - began:.1f} s {json.dumps(rows[variant])}", flush=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
