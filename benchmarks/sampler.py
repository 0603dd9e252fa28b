"""What a step pays for sampling on a GPU: microseconds over the greedy step, by filter. Prints JSON.

`python benchmarks/sampler.py` on a machine with a CUDA device. `wall_us` is what the host sees of one call until it has
the tokens, and so what a step that does not run ahead pays; `device_us` is the device's own time. `shares` says which
part of a greedy step's speed is left at the time a token of 32 streams took on one H200 (2026-11-22): 3.56 ms on the
shape of 0.6 B parameters, 8.07 ms on that of 8 B. The goal is 0.8 for `top_p`.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from graphpod_runtime.engine.forward.sampling.sampler import Sampler, greedy
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.kernels.sampling.draw import Draw, draw_by_torch, drawer_for

KINDS = {
    "greedy": Sampling(),
    "temperature": Sampling(0.8),
    "top_p": Sampling(0.8, 0.95),
    "top_k": Sampling(0.8, top_k=50),
    "min_p": Sampling(0.8, min_p=0.05),
    "all": Sampling(0.8, 0.95, top_k=50, min_p=0.05),
}
STEPS_MS = {"0.6B": 3.56, "8B": 8.07}
WARM, ROUNDS = 10, 100


def measured(step: Callable[[], Tensor]) -> dict[str, float]:
    """Medians of one step, in microseconds."""
    for _ in range(WARM):
        step().tolist()
    walls = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step().tolist()
        walls.append((time.perf_counter() - began) * 1e6)
    devices = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)  # the host is ahead when the device begins: launches are not measured
        begin.record()
        step()
        end.record()
        end.synchronize()
        devices.append(begin.elapsed_time(end) * 1e3)
    return {"wall_us": round(statistics.median(walls), 1), "device_us": round(statistics.median(devices), 1)}


def line_of(row: Tensor, name: str, drawing: Draw) -> dict[str, object]:
    """Every kind of sampling over logits `row` [rows, vocab]."""
    chosen, positions = greedy(row), torch.arange(row.shape[0], device=row.device)

    def of(sampling: Sampling) -> dict[str, float]:
        members = tuple(Sequence(str(index), [1], 1, 1, replace(sampling, seed=index)) for index in range(row.shape[0]))
        sampler = Sampler(drawing, row.device)
        return measured(lambda: sampler.batch(members).tokens(row, chosen, positions))

    found = {kind: of(sampling) for kind, sampling in KINDS.items()}
    extra = {kind: (one["wall_us"] - found["greedy"]["wall_us"]) / 1e3 for kind, one in found.items()}
    shares = {
        model: {kind: round(step / (step + more), 3) for kind, more in extra.items()}
        for model, step in STEPS_MS.items()
    }
    return {"drawing": name, "dtype": str(row.dtype).removeprefix("torch."), **found, "shares": shares}


def main() -> None:
    """A line of JSON for each dtype, sharpness and way of drawing, then one for the greedy choice itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=151_936)
    options = parser.parse_args()
    device = torch.device("cuda", 0)
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, **vars(options)}))
    logits = torch.randn(
        options.rows, options.vocab, generator=torch.Generator(device=device).manual_seed(1), device=device
    )
    for dtype in (torch.bfloat16, torch.float32):
        # Of random weights, nearly flat, and of a trained model.
        for sharpness in (0.6, 4.0):
            for name, drawing in (("fastest", drawer_for(device)), ("torch", draw_by_torch)):
                line = line_of((logits * sharpness).to(dtype), name, drawing)
                print(json.dumps({"sharpness": sharpness, **line}), flush=True)
        rows = logits.to(dtype)
        choices = {
            "greedy": measured(lambda rows=rows: greedy(rows)),
            "argmax": measured(lambda rows=rows: rows.argmax(-1)),
        }
        print(json.dumps({"dtype": str(dtype).removeprefix("torch."), "choice": choices}), flush=True)


if __name__ == "__main__":
    main()
