"""How fast weights come from a disk to the device, next to how fast the disk is read.

`python -m benchmarks.loading --model FOLDER --json FILE [--device cuda]`. Before each pass the kernel is asked to drop
the pages of the files, so both read the disk (a hypervisor's cache below it stays). `read`: READERS threads read the
files in pieces, into memory that is not read. `load`: what a start does, `before_torch` and the loader. Medians.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import torch

from graphpod_policy import __version__
from graphpod_runtime.engine import before_torch
from graphpod_runtime.models.checkpoint_files import files_of
from graphpod_runtime.models.loader import load_model

READERS = 8
PIECE = 16 << 20
CONTEXT = 4096


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder with *.safetensors")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    files = files_of(options.model)
    size = sum(file.stat().st_size for file in files)
    device = torch.device(options.device)
    torch.zeros(1, device=device)  # the device's own start is not the loader's
    ways: dict[str, Callable[[], None]] = {
        "read": lambda: _read(files),
        "load": lambda: _load(options.model, device),
        "loadCached": lambda: _load(options.model, device),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for at in range(options.passes):
        for name, run in ways.items():
            if name != "loadCached":  # its pages are there: `load` ran before it
                _drop(files)
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
            print(f"{at + 1}/{options.passes} {name}: {size / seconds[name][-1] / 1e9:.2f} GB/s", flush=True)
    rates = {name: size / statistics.median(each) / 1e9 for name, each in seconds.items()}
    found = {
        "gigabytesPerSecond": {name: round(rate, 2) for name, rate in rates.items()},
        "loadOfRead": round(rates["load"] / rates["read"], 3),
        "bytes": size,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "graphpod": __version__,
        "torch": torch.__version__,
    }
    print(text := json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(f"{text}\n")


def _drop(files: list[Path]) -> None:
    os.sync()
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(files: list[Path]) -> None:
    pieces = [(path, at) for path in files for at in range(0, path.stat().st_size, PIECE)]

    def read(piece: tuple[Path, int]) -> None:
        path, at = piece
        with path.open("rb", buffering=0) as file:
            os.pread(file.fileno(), PIECE, at)

    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(read, pieces))


def _load(folder: Path, device: torch.device) -> None:
    before_torch.read_ahead(folder)
    load_model(folder, torch.bfloat16, CONTEXT, device)
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
