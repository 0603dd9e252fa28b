"""What speculative decoding brings one stream on a GPU, with acceptance as an input: random weights agree on nothing.

`python -m benchmarks.speculation --json FILE`. The 8B shape: plain, with prompt look-up, and with a draft model of the
0.6B shape. Drafts count as right at a set rate (GRAPHPOD_ACCEPTANCE). Of each engine: the time of its decode graph for
one sequence and of what makes its drafts, and tokens a second of one request behind its first tokens. `ideal` is the
speed-up that the measured tokens of a pass would give if a pass took no more than these times. Seconds are medians.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.random_engine import SHAPES, median, provenance, ready
from graphpod_policy import (
    CompileMode,
    Device,
    Features,
    GraphRequest,
    Phase,
    SpeculativeMethod,
)
from graphpod_runtime.engine.capture.debug import ACCEPTANCE
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.forward.inputs import dummy_inputs
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.kernels.rows.draft_rows import PAGES

METHODS: tuple[SpeculativeMethod | None, ...] = (None, SpeculativeMethod.Ngram, SpeculativeMethod.DraftModel)
PROMPT, SKIPPED, PREFILL = 64, 32, 64
"""Tokens of the prompt, tokens of the answer before its clock starts, rows of the one prefill graph."""
KV_BYTES = 2 << 30
COUNTED = ("passes", "proposed_tokens", "accepted_tokens")


@dataclass(frozen=True, slots=True)
class Workload:
    """What is measured: `tokens` of an answer behind the skipped ones."""

    model: Path
    draft: Path
    device: Device
    dtype: str
    compile: CompileMode
    drafts: int
    rate: float
    tokens: int
    kv_bytes: int


def runner_of(work: Workload, method: SpeculativeMethod | None) -> Runner:
    """A Ready runner for one sequence, by `method`."""
    features = Features(
        device=work.device,
        gpus=1 if work.device is Device.Cuda else 0,
        max_model_len=PROMPT + SKIPPED + work.tokens + 64,
        max_batch=1,
        prefill_chunk=PREFILL,
        speculative=method,
        speculative_steps=work.drafts,
        speculative_max_batch=1 if method else None,
        speculative_draft=str(work.draft) if method is SpeculativeMethod.DraftModel else None,
    )
    request = GraphRequest(prefill_sizes=(PREFILL,), decode_sizes=(1,), compile=work.compile)
    with acceptance(work.rate if method else None):
        return ready(work.model, features, request, work.dtype, kv_cache_bytes=work.kv_bytes)


@contextmanager
def acceptance(rate: float | None) -> Iterator[None]:
    """Drafts of engines that start within count as right at this rate; None: as the model says."""
    before = os.environ.pop(ACCEPTANCE, None)
    if rate is not None:
        os.environ[ACCEPTANCE] = str(rate)
    try:
        yield
    finally:
        os.environ.pop(ACCEPTANCE, None)
        if before is not None:
            os.environ[ACCEPTANCE] = before


def graph_seconds(runner: Runner, device: Device) -> float:
    """Of the decode graph of one sequence, all its rows."""
    rows = runner.config.feature_set().verify_width
    inputs = dummy_inputs(Phase.Decode, rows, runner.config.page_size, runner.engine.device)
    graphs = runner.engine.graphs[Phase.Decode]
    return median(lambda: graphs.replay(inputs, rows), device)


def draft_seconds(runner: Runner, device: Device) -> float:
    """Of the drafts of one sequence, whose seat is one of padding: the draft model's graph, or the look-up."""
    seats = runner.engine.seats
    if not isinstance(seats, DraftingSeats):
        return 0.0
    last = torch.tensor([len(seats.state) - 1], device=runner.engine.device)
    pages = seats.state.shape[1] - PAGES
    return median(lambda: seats.proposer.propose(seats.state, last, seats.slot_tokens(), pages), device)


def stream_rate(runner: Runner, tokens: int) -> float:
    """Tokens a second of one request that decodes alone, behind SKIPPED of its tokens."""
    scheduler = Scheduler(runner.pages, Limits.of(runner.config, 1), runner.eos_ids)
    run_ahead = RunAhead(scheduler, runner)
    prompt = [(7 * index) % 97 + 3 for index in range(PROMPT)]
    scheduler.submit(Sequence("one", prompt, PROMPT, SKIPPED + tokens, ignore_eos=True))
    count = first = 0
    began = ended = 0.0
    while run_ahead.busy:
        if found := len(run_ahead.turn()):
            count, ended = count + found, time.perf_counter()
            if count >= SKIPPED and not first:
                first, began = count, ended
    return (count - first) / (ended - began)


def measured(work: Workload, method: SpeculativeMethod | None) -> dict[str, float]:
    """The row of `method`."""
    began = time.perf_counter()
    runner = runner_of(work, method)
    for warning in runner.report.warnings:
        print(f"{method or 'plain'}: {warning}", flush=True)
    found = {
        "startSeconds": time.perf_counter() - began,
        "graphSeconds": graph_seconds(runner, work.device),
        "draftSeconds": draft_seconds(runner, work.device),
    }
    stream_rate(runner, 8)
    before = {name: runner.counters.value(f"graphpod_speculation_{name}_total") for name in COUNTED}
    found["tokensPerSecond"] = stream_rate(runner, work.tokens)
    if method is not None:
        passes, proposed, accepted = (
            runner.counters.value(f"graphpod_speculation_{name}_total") - before[name] for name in COUNTED
        )
        found |= {"acceptedShare": accepted / proposed, "tokensPerPass": 1 + accepted / passes}
    return found


Measure = Callable[[Workload, SpeculativeMethod | None], dict[str, float]]


def compared(rows: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Each method against the plain row."""
    plain, found = rows["plain"], {}
    for name, row in rows.items():
        if name == "plain":
            continue
        speedup = row["tokensPerSecond"] / plain["tokensPerSecond"]
        ideal = row["tokensPerPass"] * plain["graphSeconds"] / (row["graphSeconds"] + row["draftSeconds"])
        found[name] = {
            "verifyOverDecode": row["graphSeconds"] / plain["graphSeconds"],
            "speedup": speedup,
            "ideal": ideal,
            "ofIdeal": speedup / ideal,
        }
    return found


def run(work: Workload, measure: Measure = measured) -> dict[str, Any]:
    """All rows, with their comparison."""
    rows: dict[str, dict[str, float]] = {}
    for method in METHODS:
        name = method.value if method else "plain"
        rows[name] = measure(work, method)
        print(name, json.dumps({key: round(value, 6) for key, value in rows[name].items()}), flush=True)
    return {"rows": rows, "compared": compared(rows)}


def measured_aside(work: Workload, method: SpeculativeMethod | None) -> dict[str, float]:
    """As `measured`, by a process of its own: an engine keeps its memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as aside:
        return aside.submit(measured, work, method).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=SHAPES / "qwen3-8b", help="a folder with a config.json")
    parser.add_argument("--draft", type=Path, default=SHAPES / "qwen3-0.6b", help="the same, of the draft model")
    parser.add_argument("--device", type=Device, choices=tuple(Device), default=Device.Cuda)
    parser.add_argument("--compile", type=CompileMode, choices=tuple(CompileMode), default=CompileMode.Inductor)
    parser.add_argument("--drafts", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.8, help="share of all drafts that count as right")
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_args()
    gpu = options.device is Device.Cuda
    work = Workload(
        model=options.model,
        draft=options.draft,
        device=options.device,
        dtype="bfloat16" if gpu else "float32",
        compile=options.compile if gpu else CompileMode.Nothing,
        drafts=options.drafts,
        rate=options.rate,
        tokens=options.tokens,
        kv_bytes=KV_BYTES if gpu else KV_BYTES >> 8,
    )
    content = {
        "command": " ".join(("python -m benchmarks.speculation", *sys.argv[1:])),
        **provenance(options.device),
        "drafts": work.drafts,
        "rate": work.rate,
        **run(work, measured_aside),
    }
    for name, row in content["compared"].items():
        print(name, " ".join(f"{key} {value:.3f}" for key, value in row.items()))
    options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
