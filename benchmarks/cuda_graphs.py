"""Prefill, decode, capture and start on one GPU: graphs against eager, a process for each, beside the physical floor.

    python -m benchmarks.cuda_graphs --out benchmarks/results/cuda_graphs.json

Weights are random (`benchmarks/shapes`). Prefill is one pass over one request, host receives its token; decode is
tokens per second by difference of two generations of unique 64-token prompts: batch · 128 / (t(136 new) - t(8 new)).
A start is timed from its process's first moment, imports included. What is compiled starts twice: with an empty cache
of compiled code, and with the one that the first start left, which is the start whose engine is measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
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


def runner_of(folder: Path, prefill: Policy, decode: Policy, compile: CompileMode, began: float) -> Runner:
    """A Ready runner with random weights, in a process that began at `began`."""
    features = Features(device=Device.Cuda, max_model_len=4096, max_batch=32, prefill_chunk=4096)
    request = GraphRequest(prefill=prefill, decode=decode, compile=compile)
    config = EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(folder.name, str(folder)),
        dtype="bfloat16",
    )
    runner = Runner(config, lambda report: None, began, load=random_model)
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


def start_of(folder: Path, variant: str, began: float) -> tuple[Runner, dict[str, object]]:
    """A Ready runner, and what its start took."""
    runner = runner_of(folder, *VARIANTS[variant], began)
    report = runner.report
    return runner, {
        "start_s": round(time.time() - began, 2),
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
    }


def speed_of(runner: Runner) -> dict[str, object]:
    """Prefill and decode of a Ready runner."""
    return {
        "prefill_ms": {str(tokens): round(prefill_ms(runner, tokens), 3) for tokens in PREFILL_TOKENS},
        "decode_tokens_per_s": {str(batch): round(decode_rate(runner, batch), 1) for batch in DECODE_BATCHES},
        "weight_bytes": weight_bytes(runner),
        "fallbacks": runner.counters.value("graphpod_graph_fallbacks_total"),
    }


def child(shape: str, variant: str, cache: str, *options: str) -> dict[str, object]:
    """What a process of its own finds about one variant."""
    command = [sys.executable, "-m", "benchmarks.cuda_graphs", "--shapes", shape, "--variant", variant]
    done = subprocess.run(
        [*command, "--began", str(time.time()), *options],
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--shapes", nargs="*", default=["qwen3-0.6b", "qwen3-8b"])
    # Of the processes that this one starts.
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--start-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant:
        runner, found = start_of(SHAPES / options.shapes[0], options.variant, options.began)
        print(json.dumps(found if options.start_only else found | speed_of(runner)))
        return 0
    result: dict[str, object] = {
        "command": "python -m benchmarks.cuda_graphs --out benchmarks/results/cuda_graphs.json",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "graphpod": __version__,
            "torch": torch.__version__,
            "flashinfer": version("flashinfer-python"),
            "triton": version("triton"),
            "device": torch.cuda.get_device_name(),
        },
        "copy_bytes_per_s": round(copy_rate()),
        "models": {},
    }
    torch.cuda.empty_cache()
    for shape in options.shapes:
        rows: dict[str, object] = {}
        result["models"][shape] = rows  # type: ignore[index]
        with tempfile.TemporaryDirectory() as cache:
            for variant, (_, _, compile) in VARIANTS.items():
                if compile is INDUCTOR and not any(Path(cache).iterdir()):
                    rows[f"{variant}, nothing cached"] = child(shape, variant, cache, "--start-only")
                rows[variant] = child(shape, variant, cache)
                print(f"{shape} {variant}: {json.dumps(rows[variant])}", flush=True)
                if options.out:
                    options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
