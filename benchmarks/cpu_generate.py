"""Prefill and decode on a CPU: graphs (recorder) against eager and against transformers, in one run.

`make bench` runs it on the demo's weights. Only the ratios mean anything: the machine is shared, so absolute times
move by half from run to run, and the variants take turns so that all of them see the same minutes. Writes JSON.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from graphpod_policy import EngineConfig, Features, GraphRequest, ModelConfig, Policy, __version__, resolve
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner

PREFILL_TOKENS = (16, 64, 256)
DECODE_BATCHES = (1, 8)
DECODE_TOKENS = 24
ROUNDS = 5

VARIANTS = {
    "eager": GraphRequest(prefill=Policy.Disabled, decode=Policy.Disabled),
    "graphs": GraphRequest(),
}


def runner_of(model: Path, dtype: str, request: GraphRequest, threads: int) -> Runner:
    """A Ready runner for `request`."""
    features = Features(max_model_len=512)
    config = EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(model.name, str(model)),
        dtype=dtype,
        threads=threads,
    )
    runner = Runner(config, lambda report: None)
    runner.start()
    return runner


def prompt(tokens: int, salt: int) -> list[int]:
    """Token ids that differ for each `salt`; what they mean does not matter for time."""
    return [(salt * 7919 + index * 104729) % 40000 + 100 for index in range(tokens)]


def seconds(work: Callable[[], object]) -> float:
    """Wall time of `work`."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def decode_rate(runner: Runner, batch: int) -> float:
    """Decode tokens per second: the longer of two generations minus the shorter, so prefill cancels out."""
    prompts = [prompt(32, salt) for salt in range(batch)]
    short = seconds(lambda: generate(runner, prompts, 4, ignore_eos=True))
    long = seconds(lambda: generate(runner, prompts, 4 + DECODE_TOKENS, ignore_eos=True))
    return batch * DECODE_TOKENS / (long - short)


def transformers_decode_rate(model: Path, dtype: str, threads: int) -> Callable[[int], float]:
    """Decode of transformers' `generate` on the same prompts by batch, greedy, KV cache on."""
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))

    def run(batch: int, new: int) -> object:
        ids = torch.tensor([prompt(32, salt) for salt in range(batch)])
        with torch.no_grad():
            return reference.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False
            )

    def rate(batch: int) -> float:
        return batch * DECODE_TOKENS / (seconds(lambda: run(batch, 4 + DECODE_TOKENS)) - seconds(lambda: run(batch, 4)))

    return rate


def measure(model: Path, dtype: str, threads: int) -> dict[str, object]:
    """Medians over ROUNDS, the variants taking turns within each round."""
    starts, runners = {}, {}
    for name, request in VARIANTS.items():
        print(f"start {name} ({dtype}) …", flush=True)
        began = time.perf_counter()
        runners[name] = runner_of(model, dtype, request, threads)
        starts[name] = time.perf_counter() - began
    reference = transformers_decode_rate(model, dtype, threads)
    prefill: dict[str, list[float]] = {}
    decode: dict[str, list[float]] = {}
    for turn in range(ROUNDS):
        print(f"round {turn + 1} of {ROUNDS}", flush=True)
        for name, runner in runners.items():
            for tokens in PREFILL_TOKENS:
                work = [prompt(tokens, turn)]
                prefill.setdefault(f"{name}@{tokens}", []).append(seconds(lambda r=runner, w=work: generate(r, w, 1)))
            for batch in DECODE_BATCHES:
                decode.setdefault(f"{name}@{batch}", []).append(decode_rate(runner, batch))
        for batch in DECODE_BATCHES:
            decode.setdefault(f"transformers@{batch}", []).append(reference(batch))
    median = {key: statistics.median(values) for key, values in (prefill | decode).items()}
    return {
        "startSeconds": starts,
        "prefillSeconds": {key: median[key] for key in prefill},
        "decodeTokensPerSecond": {key: median[key] for key in decode},
        "ratios": {
            **{f"prefill eager/graphs @{n}": median[f"eager@{n}"] / median[f"graphs@{n}"] for n in PREFILL_TOKENS},
            **{f"decode graphs/eager @{b}": median[f"graphs@{b}"] / median[f"eager@{b}"] for b in DECODE_BATCHES},
            **{
                f"decode graphs/transformers @{b}": median[f"graphs@{b}"] / median[f"transformers@{b}"]
                for b in DECODE_BATCHES
            },
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder with config.json and model.safetensors")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu_generate.json"))
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    found = {dtype: measure(options.model, dtype, options.threads) for dtype in options.dtype}
    result = {
        "command": "make bench",
        "date": datetime.now(UTC).date().isoformat(),
        "graphpod": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {options.threads} threads",
        "model": options.model.name,
        "results": found,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    for dtype, values in found.items():
        for name, ratio in values["ratios"].items():  # type: ignore[attr-defined]
            print(f"{dtype:9} {name:32} {ratio:5.2f}")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
