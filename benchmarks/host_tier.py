"""What the host tier of the KV cache brings on a GPU: a long prefix that was evicted and is hit again.

`python -m benchmarks.host_tier --json FILE`. The 8B shape with random weights. Prompts of 8192 tokens in a KV cache for
one of them and the decoding requests, so each evicts the one before:

- `computed` and `hit`: seconds to the first token of an engine without other requests, by computing the prefix and by
  loading it. Both evict another prefix meanwhile. `loadRate` is by events on the stream of loads.
- `decode`: seconds of a step of the other requests, alone, and in the turns between the call for a load and the pass of
  the request that it is for (`loading`).

`pinned` is what one large copy of pinned memory reaches. Seconds are medians, but for decode steps, which are means.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.random_engine import SHAPES, provenance, ready
from graphpod_policy import (
    CompileMode,
    Device,
    Features,
    GraphRequest,
)
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.cache.host_tier import HostTier, LoadCosts
from graphpod_runtime.cache.kv import page_bytes
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.models.config_json import read_shape

PREFIXES = 4
"""They are asked for in turns, so each is the one that has been out of the KV cache for longest."""
TAIL, PROMPT, PAGE = 8, 64, 16
"""Tokens of a request behind its prefix, of the prompt of one that decodes, and of a page."""
PINNED_BYTES, PINNED_ROUNDS = 256 << 20, 5
TTFT, RATE, DECODE = 0.2, 0.7, 0.95
"""To be shown: at most this part of the time to compute, at least this of the pinned rate and of decode's speed."""


@dataclass(frozen=True)
class Workload:
    """`prefix` tokens are hit, `rounds` times alone and as often while `decoders` requests decode. `always`: whether
    loads pay or not."""

    model: Path
    device: Device
    dtype: str
    compile: CompileMode
    prefix: int = 8192
    chunk: int = 2048
    decoders: int = 8
    rounds: int = 8
    steps: int = 200
    always: bool = False

    @property
    def answer(self) -> int:
        """Tokens of a request that decodes: more than are measured."""
        return self.steps + 40 * self.rounds


def runner_of(work: Workload) -> Runner:
    """A Ready runner. Its KV cache holds a prefix and a quarter, and the requests that decode; its host tier all
    prefixes, twice."""
    page = page_bytes(read_shape(work.model, False), PAGE, dtype_of(work.dtype))
    features = Features(
        device=work.device,
        gpus=1 if work.device is Device.Cuda else 0,
        max_model_len=work.prefix + TAIL + PROMPT + work.answer,
        max_batch=work.decoders + 1,
        prefill_chunk=work.chunk,
        host_cache_bytes=2 * PREFIXES * (work.prefix // PAGE) * page,
    )
    pages = 5 * work.prefix // (4 * PAGE) + work.decoders * ((PROMPT + work.answer) // PAGE + 1)
    assert pages < 2 * work.prefix // PAGE, "a prefix would stay"
    request = GraphRequest(prefill_sizes=(2 * TAIL, work.chunk), decode_sizes=(work.decoders,), compile=work.compile)
    return ready(work.model, features, request, work.dtype, page_size=PAGE, kv_cache_bytes=pages * page)


def tier_of(work: Workload, runner: Runner) -> HostTier:
    """The runner's, when all of it is pinned."""
    tier = runner.host_tier
    assert tier is not None, "the log says why"
    wanted = (runner.config.features.host_cache_bytes or 0) // tier.copies.page_bytes
    while tier.copies.slots < wanted:
        assert not tier.copies.failed_allocations, f"{tier.copies.slots} of {wanted} pages have memory"
        time.sleep(0.05)
    if work.always:
        tier.costs = LoadCosts(0.0, 0.0, 1.0)
    return tier


def pinned_rates() -> dict[str, float]:
    """Bytes a second of one large copy of pinned memory each way, the best of some, by events."""
    host = torch.empty(PINNED_BYTES, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(PINNED_BYTES, dtype=torch.uint8, device="cuda")
    found = {}
    for name, into, source in (("load", there, host), ("store", host, there)):
        seconds = []
        for _ in range(PINNED_ROUNDS):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            into.copy_(source, non_blocking=True)
            ended.record()
            ended.synchronize()
            seconds.append(began.elapsed_time(ended) / 1000)
        found[name] = PINNED_BYTES / min(seconds)
    return found


class Serving:
    """One scheduler over a runner, and the requests of the workload."""

    def __init__(self, work: Workload, runner: Runner, tier: HostTier) -> None:
        self.work, self.tier = work, tier
        limits = Limits.serving(runner.config)
        self.scheduler = Scheduler(runner.pages, limits, runner.eos_ids, tier)
        self.run_ahead = RunAhead(self.scheduler, runner)
        self._asked = 0

    def request(self, tokens: list[int], answer: int) -> Sequence:
        """A request that begins with `tokens` and differs from all others behind them, submitted."""
        self._asked += 1
        prompt = [*tokens, *((self._asked * index) % 89 + 3 for index in range(1, TAIL + 1))]
        one = Sequence(str(self._asked), prompt, len(prompt), answer, ignore_eos=True)
        self.scheduler.submit(one)
        return one

    def prefix(self, number: int, length: int) -> list[int]:
        """Tokens that no other number begins with."""
        return [number + 3, *((7 * index + number) % 97 + 3 for index in range(1, length))]

    def hit(self, number: int) -> Sequence:
        """A request for the prefix of this round."""
        return self.request(self.prefix(number % PREFIXES, self.work.prefix), 1)

    def first_token(self, number: int) -> tuple[float, int]:
        """Seconds to the first token of a request that is alone, and the tokens that it did not compute."""
        began = time.perf_counter()
        one = self.hit(number)
        while not any(progress.sequence is one for progress in self.run_ahead.turn()):
            pass
        seconds = time.perf_counter() - began
        while self.run_ahead.busy:
            self.run_ahead.turn()
        return seconds, one.cached or 0

    def until(self, one: Sequence, tokens: int) -> None:
        """Turns until `one` has that many tokens of its answer."""
        while len(one.tokens) - one.prompt_len < tokens:
            self.run_ahead.turn()


def alone(serving: Serving) -> dict[str, Any]:
    """Prefixes computed, then hit."""
    tier, work = serving.tier, serving.work
    computed = [serving.first_token(number) for number in range(PREFIXES)]
    assert all(not cached for _, cached in computed)
    loaded, spent = tier.loaded, tier.copies.load_seconds
    hits = [serving.first_token(number) for number in range(work.rounds)]
    assert all(cached == work.prefix for _, cached in hits), hits
    pages, spent = tier.loaded - loaded, tier.copies.load_seconds - spent
    seconds = statistics.median(seconds for seconds, _ in computed[1:])
    return {
        "computedSeconds": seconds,
        "hitSeconds": statistics.median(seconds for seconds, _ in hits),
        "loadedPages": pages,
        "hitBytes": pages * tier.copies.page_bytes // work.rounds,
        "loadRate": pages * tier.copies.page_bytes / spent,
        "storeRate": tier.stored * tier.copies.page_bytes / tier.copies.store_seconds,
    }


def while_others_decode(serving: Serving) -> dict[str, Any]:
    """Steps of the requests that decode, without and with a load on its way."""
    work = serving.work
    decoding = [
        serving.request(serving.prefix(90 + index, PROMPT - TAIL), work.answer) for index in range(work.decoders)
    ]
    for one in decoding:
        serving.until(one, 8)
    began = time.perf_counter()
    for _ in range(work.steps):
        serving.run_ahead.turn()
    plain = (time.perf_counter() - began) / work.steps
    loading, seconds, loaded = list[float](), list[float](), serving.tier.loaded
    for number in range(work.rounds):
        before = began = time.perf_counter()
        one = serving.hit(number)
        while True:
            serving.run_ahead.turn()
            now = time.perf_counter()
            if one.cached is not None and one.launched > one.cached:
                break
            loading.append(now - before)
            before = now
        serving.until(one, 1)
        seconds.append(time.perf_counter() - began)
        for _ in range(10):
            serving.run_ahead.turn()
    assert all(len(one.tokens) - one.prompt_len < work.answer for one in decoding), "who decodes ended too early"
    for one in decoding:
        serving.scheduler.abort(one.id)
    while serving.run_ahead.busy:
        serving.run_ahead.turn()
    return {
        "stepSeconds": plain,
        "loadingSteps": len(loading),
        "loadingStepSeconds": statistics.mean(loading) if loading else None,
        "hitSeconds": statistics.median(seconds),
        "loadedPages": serving.tier.loaded - loaded,
    }


def compared(found: dict[str, Any]) -> dict[str, float]:
    """The figures against what they are measured by."""
    rows, decode = found["alone"], found["decode"]
    ratios = {"ttft": rows["hitSeconds"] / rows["computedSeconds"]}
    if found["pinned"]:
        ratios["ofPinned"] = rows["loadRate"] / found["pinned"]["load"]
    if decode["loadingStepSeconds"]:
        ratios["decode"] = decode["stepSeconds"] / decode["loadingStepSeconds"]
    return ratios


def run(work: Workload) -> dict[str, Any]:
    """All figures of one engine, with their comparison."""
    began = time.perf_counter()
    runner = runner_of(work)
    tier = tier_of(work, runner)
    found: dict[str, Any] = {
        "startSeconds": time.perf_counter() - began,
        "costs": asdict(tier.costs),
        "pinned": pinned_rates() if work.device is Device.Cuda else None,
    }
    serving = Serving(work, runner, tier)
    found["alone"] = alone(serving)
    found["decode"] = while_others_decode(serving)
    found["waits"] = tier.waits
    found["failures"] = {reason.value: number for reason, number in tier.failures.items()}
    return found | {"compared": compared(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=SHAPES / "qwen3-8b", help="a folder with a config.json")
    parser.add_argument("--device", type=Device, choices=tuple(Device), default=Device.Cuda)
    parser.add_argument("--compile", type=CompileMode, choices=tuple(CompileMode), default=CompileMode.Inductor)
    parser.add_argument("--prefix", type=int, default=Workload.prefix)
    parser.add_argument("--decoders", type=int, default=Workload.decoders)
    options = parser.parse_args()
    work = Workload(
        model=options.model,
        device=options.device,
        dtype="bfloat16" if options.device is Device.Cuda else "float32",
        compile=options.compile,
        prefix=options.prefix,
        decoders=options.decoders,
    )
    content = {
        "command": " ".join(("python -m benchmarks.host_tier", *sys.argv[1:])),
        **provenance(options.device),
        "prefix": work.prefix,
        "decoders": work.decoders,
        **run(work),
    }
    options.json.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))
    wanted = {"ttft": f"at most {TTFT}", "ofPinned": f"at least {RATE}", "decode": f"at least {DECODE}"}
    for name, ratio in content["compared"].items():
        print(f"{name:9} {ratio:.3f}, {wanted[name]}")


if __name__ == "__main__":
    main()
