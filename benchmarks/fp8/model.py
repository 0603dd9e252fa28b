"""What FP8 weights bring on a GPU: the 8B shape with random weights, plain, by channels and by blocks, in one run.

`python -m benchmarks.fp8.model --json FILE`. Prefill of 2048 tokens, and decode of 1 and 32 sequences, as captured
graphs replay them, with compiled layers. Seconds are medians; the ratios are to plain bfloat16 weights of this run.
"""

import argparse
import json
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.random_engine import SHAPES, median, provenance, ready
from graphpod_policy import (
    CompileMode,
    Device,
    Features,
    GraphRequest,
    Phase,
    Quantization,
)
from graphpod_runtime.engine.forward.inputs import dummy_inputs
from graphpod_runtime.engine.runner import Runner

SHAPE = SHAPES / "qwen3-8b"
PREFILL, BATCHES = 2048, (1, 32)
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
FORMS = ("plain", "channels", "blocks")


def folder_of(form: str, parent: Path) -> Path:
    """The shape's config.json; for blocks it says so."""
    folder = parent / form
    shutil.copytree(SHAPE, folder)
    if form == "blocks":
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": BLOCKS}))
    return folder


def runner_of(form: str, folder: Path) -> Runner:
    """A Ready runner with graphs of what is measured."""
    features = Features(
        device=Device.Cuda, gpus=1, max_model_len=4096, max_batch=max(BATCHES), prefill_chunk=PREFILL,
        quantization=Quantization.Fp8 if form == "channels" else None,
    )  # fmt: skip
    request = GraphRequest(prefill_sizes=(PREFILL,), decode_sizes=BATCHES, compile=CompileMode.Inductor)
    print(f"{form:9} starting", flush=True)
    return ready(folder, features, request, "bfloat16")


def measured(form: str, parent: Path) -> dict[str, Any]:
    """Seconds of each row, and bytes of the weights."""
    runner = runner_of(form, folder_of(form, parent))
    engine, page_size = runner.engine, runner.config.page_size
    found: dict[str, Any] = {"weightsBytes": runner.report.weights_bytes, "weights": runner.report.weights}
    for phase, size in ((Phase.Prefill, PREFILL), *((Phase.Decode, batch) for batch in BATCHES)):
        inputs, graphs = dummy_inputs(phase, size, page_size, engine.device), engine.graphs[phase]
        engine.attention.plan(inputs)
        run = partial(graphs.replay, inputs, size)
        found[f"{phase} {size}"] = median(run, Device.Cuda)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    # Each in a process of its own: an engine takes what is free of the GPU.
    with (
        tempfile.TemporaryDirectory() as parent,
        ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as aside,
    ):
        for form in FORMS:
            rows[form] = aside.submit(measured, form, Path(parent)).result()
            for name, seconds in rows[form].items():
                if isinstance(seconds, float):
                    print(f"{form:9} {name:14} {seconds * 1e3:8.2f} ms  {rows['plain'][name] / seconds:5.2f} ×")
    content = provenance(Device.Cuda) | {"rows": rows}
    options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
