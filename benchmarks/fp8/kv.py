"""What an FP8 KV cache brings decode over long contexts on a GPU: the 8B shape with random weights, in one run.

`python -m benchmarks.fp8.kv --json FILE`. Steps of full batches over full contexts, as the captured graph replays them,
with compiled layers, over a cache of random numbers. Seconds are medians; the ratios are to the bfloat16 cache of this
run.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.random_engine import SHAPES, median, provenance, ready
from graphpod_policy import CompileMode, Device, Features, GraphRequest, KvCacheDtype, Phase
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.engine.forward.inputs import dummy_inputs

ROWS = ((32, 8192), (8, 32768), (1, 32768), (1, 8192))
"""Sequences of a step, and tokens of the context of each."""
CACHES = KvCacheDtype.Auto, KvCacheDtype.Fp8
BATCHES = tuple(sorted({sequences for sequences, _ in ROWS}))


def long_contexts(sequences: int, tokens: int, cache: KvCache) -> Inputs:
    """A step over `sequences` contexts of `tokens` each, whose pages lie in no order."""
    pages, page_size = -(-tokens // cache.page_size), cache.page_size
    order = torch.randperm(sequences * pages, generator=torch.Generator().manual_seed(0))
    tables = (order + 1).view(sequences, pages)
    short = dummy_inputs(Phase.Decode, sequences, page_size, cache.device)
    slots = tables[:, -1] * page_size + (tokens - 1) % page_size
    positions = torch.full((sequences,), tokens - 1)
    return replace(
        short, tables=tables, lengths=torch.full((sequences,), tokens),
        slots=slots.to(cache.device), positions=positions.to(cache.device),
    )  # fmt: skip


def fill(cells: Tensor) -> None:
    """Random numbers: what they are changes the clock of a GPU."""
    for page in cells.split(1024):
        page.copy_(torch.randn(page.shape, device=page.device))


def measured(kv_cache: KvCacheDtype) -> dict[str, float]:
    """Seconds of each row."""
    features = Features(
        device=Device.Cuda, gpus=1, max_model_len=max(tokens for _, tokens in ROWS), max_batch=max(BATCHES),
        kv_cache_dtype=kv_cache,
    )  # fmt: skip
    request = GraphRequest(prefill_sizes=(2048,), decode_sizes=BATCHES, compile=CompileMode.Inductor)
    print(f"{kv_cache:5} starting", flush=True)
    engine = ready(SHAPES / "qwen3-8b", features, request, "bfloat16").engine
    for cells in (*engine.attention.cache.keys, *engine.attention.cache.values):
        fill(cells)
    found = {}
    for sequences, tokens in ROWS:
        inputs = long_contexts(sequences, tokens, engine.attention.cache)
        run = partial(engine.graphs[Phase.Decode].replay, inputs, sequences)
        found[f"{sequences} x {tokens}"] = median(run, Device.Cuda)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    # Each in a process of its own: an engine takes what is free of the GPU.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as aside:
        for kv_cache in CACHES:
            rows[kv_cache] = aside.submit(measured, kv_cache).result()
            for name, seconds in rows[kv_cache].items():
                print(
                    f"{kv_cache:5} {name:10} {seconds * 1e3:8.2f} ms  {rows['Auto'][name] / seconds:5.2f} ×", flush=True
                )
    options.json.write_text(json.dumps(provenance(Device.Cuda) | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
