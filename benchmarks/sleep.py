"""How long an engine takes to leave a GPU and to come back, and what it frees: the 8B shape with random weights.

`python -m benchmarks.sleep --json FILE [--disk FOLDER]`. Seconds and bytes of each sleep and wake. The first sleep from
Memory makes the copy on the host, later ones only unmap. `freed` is what the device has free in addition, by its own
count. With `--disk` weights are written to FOLDER once, as a checkpoint, and come back from there, too; the pages of
its files are dropped before (`Disk`) or are there (`DiskCached`). After each wake the tokens must be those from before,
on the same graphs at the same addresses. `pinned`: bytes a second of one large copy of pinned memory.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.host_tier import pinned_rates
from benchmarks.random_engine import SHAPES, provenance, ready
from graphpod_policy import CompileMode, Device, Features, GraphRequest
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.sleep.sleeper import Sleeper
from graphpod_runtime.models.checkpoint_files import files_of
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.decoder_targets import decoder_targets
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.random import DEVIATION, random_model
from graphpod_runtime.models.registry import build

ROUNDS = 3
TOKENS = 32
SHARD_BYTES = 4 << 30
CONTEXT = 4096


def write_checkpoint(shape_folder: Path, folder: Path, dtype: torch.dtype) -> None:
    """Random weights of the shape in `folder`, as its loader wants them, unless some are there."""
    if (folder / "config.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with torch.device("meta"):
        model = build(read_shape(shape_folder, False), dtype, CONTEXT)
    generator = torch.Generator().manual_seed(0)
    shard: dict[str, torch.Tensor] = {}
    number = size = 0
    targets = decoder_targets(model)
    for at, (name, target) in enumerate(targets.items(), 1):
        one = torch.empty(tuple(target.shapes[0]), dtype=dtype)
        shard[name] = one.normal_(0, DEVIATION, generator=generator) if one.dim() > 1 else one.fill_(1.0)
        size += one.nbytes
        if size >= SHARD_BYTES or at == len(targets):
            save_file(shard, folder / f"model-{number:05}.safetensors", {"format": "pt"})
            shard, number, size = {}, number + 1, 0
    shutil.copy(shape_folder / "config.json", folder)


def drop_pages(folder: Path) -> None:
    """The kernel reads the files from the disk next time."""
    os.sync()
    for path in files_of(folder):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Changes:
    """Sleeps and wakes of one engine, each proved by the tokens after it."""

    def __init__(self, runner: Runner) -> None:
        assert isinstance(runner.sleeper, Sleeper), "it was asked to sleep"
        self.sleeper, self._runner = runner.sleeper, runner
        self._prompts = [[5 + row, *range(10, 10 + 8 * row)] for row in range(1, 9)]
        self._tokens = self._generate()

    def _generate(self) -> list[list[int]]:
        return generate(self._runner, self._prompts, TOKENS, ignore_eos=True)

    def round(self) -> dict[str, Any]:
        """One sleep and one wake."""
        began = time.perf_counter()
        freed = self.sleeper.sleep(lambda: None)
        slept = time.perf_counter()
        self.sleeper.wake(lambda: None)
        woke = time.perf_counter()
        assert self._generate() == self._tokens, "other tokens after a wake"
        assert self.sleeper.source is not None
        return {
            "source": self.sleeper.source.value,
            "sleepSeconds": round(slept - began, 3),
            "wakeSeconds": round(woke - slept, 3),
            "freed": freed,
        }


def rounds(changes: Changes, folder: Path | None) -> Iterator[dict[str, Any]]:
    """ROUNDS of each source."""
    if folder is not None:
        room, changes.sleeper.room = changes.sleeper.room, lambda: 0
        for cached in (False, True):
            for _ in range(ROUNDS):
                if not cached:
                    drop_pages(folder)
                found = changes.round()
                yield found | {"source": "DiskCached"} if cached else found
        changes.sleeper.room = room
    if changes.sleeper.copies:
        for _ in range(ROUNDS):
            yield changes.round()


def runner_of(model: Path, device: Device, compiled: CompileMode, folder: Path | None) -> Runner:
    """A Ready runner that can sleep; on a GPU its KV cache has what weights and graphs leave."""
    features = Features(
        device=device, gpus=1 if device is Device.Cuda else 0, max_model_len=CONTEXT, max_batch=64, sleep=True
    )
    request = GraphRequest(compile=compiled)
    dtype = "bfloat16" if device is Device.Cuda else "float32"
    if folder is not None:
        write_checkpoint(model, folder, dtype_of(dtype))
    load = random_model if folder is None else load_model
    return ready(model if folder is None else folder, features, request, dtype, load=load)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=SHAPES / "qwen3-8b", help="a folder with a config.json")
    parser.add_argument("--disk", type=Path, metavar="FOLDER", help="of a checkpoint, written if it has none")
    parser.add_argument("--device", type=Device, choices=tuple(Device), default=Device.Cuda)
    parser.add_argument("--compile", type=CompileMode, choices=tuple(CompileMode), default=CompileMode.Nothing)
    options = parser.parse_args()
    runner = runner_of(options.model, options.device, options.compile, options.disk)
    report = runner.report
    content = {
        "command": " ".join(("python -m benchmarks.sleep", *sys.argv[1:])),
        **provenance(options.device),
        "weights": report.weights_bytes,
        "kv": report.kv_bytes,
        "graphs": sum(phase.captured for phase in report.phases.values()),
        "pinned": pinned_rates() if options.device is Device.Cuda else None,
        "rounds": list(rounds(Changes(runner), options.disk)),
        "fallbacks": runner.counters.value("graphpod_graph_fallbacks_total"),
    }
    options.json.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
