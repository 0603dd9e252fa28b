"""Perplexity of a fixed text with FP8 weights, on a CPU: ours by form, against single precision, against
transformers with the same rounding, and over ranks, which scale parts of rows.

`python -m benchmarks.fp8.perplexity --model FOLDER --json benchmarks/results/fp8_perplexity.json`. The text is that of
`make truth` (truth/accuracy.py). Each variant takes minutes; a file that exists keeps what it has of others.
"""

import argparse
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as functional
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from graphpod_policy import __version__
from graphpod_runtime import Engine, SamplingOptions
from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.kernels.fp8_product import FP8, LARGEST
from graphpod_runtime.models.weights.channel_scales import quantized_rows
from truth.accuracy import TEXT, WINDOW, WINDOWS

BLOCK = 128


def ours(folder: Path, windows: Iterable[list[int]], quantization: str | None, ranks: int = 1) -> list[float]:
    """Nats of each token of `windows` but their first ones, by the engine."""
    with Engine(
        folder, device="cpu", dtype="float32", quantization=quantization, max_model_len=WINDOW + 1, max_batch=1,
        prefill="Disabled", decode="Disabled", tensor_parallel=ranks,
    ) as engine:  # fmt: skip
        nats = []
        for window in windows:
            scored = engine.generate(window, SamplingOptions(max_tokens=1, prompt_logprobs=0)).prompt_logprobs or ()
            nats += [-one.logprob for one in scored]
        return nats


def reference(folder: Path, windows: Iterable[list[int]], rounded: Callable[[Tensor], Tensor] | None) -> list[float]:
    """The same by transformers; `rounded` makes a layer's matrix what the format holds, and activations are rounded to
    FP8 by rows."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if rounded is not None:
        for module in model.model.layers.modules():
            if isinstance(module, nn.Linear):
                module.weight.data = rounded(module.weight.data)
                module.forward = partial(_fp8_linear, module.weight.data)  # type: ignore[method-assign]
    nats: list[float] = []
    with torch.no_grad():
        for window in windows:
            tokens = torch.tensor([window])
            logits = model(tokens).logits[0, :-1].float()
            nats += functional.cross_entropy(logits, tokens[0, 1:], reduction="none").tolist()
    return nats


def _fp8_linear(weight: Tensor, x: Tensor) -> Tensor:
    scale = (x.abs().amax(-1, keepdim=True) / LARGEST).clamp(min=1e-12)
    return functional.linear((x / scale).to(FP8).float() * scale, weight)


def by_channels(weight: Tensor) -> Tensor:
    """`weight` as channels with our scales hold it."""
    matrix, scale = quantized_rows(weight)
    return matrix.float() * scale[:, None]


def by_largest(weight: Tensor) -> Tensor:
    """`weight` as channels hold it whose largest weight is the largest number of FP8."""
    scale = weight.abs().amax(1, keepdim=True) / LARGEST
    return (weight / scale).to(FP8).float() * scale


def write_blocks(source: Path, folder: Path) -> Path:
    """A checkpoint of quant_method fp8 with blocks, made of the plain one in `source`."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    written = dict[str, Tensor]()
    for name, tensor in load_file(source / "model.safetensors").items():
        if "_proj.weight" not in name:
            written[name] = tensor
            continue
        wide = tensor.float()
        grown = functional.pad(wide, (0, -wide.shape[1] % BLOCK, 0, -wide.shape[0] % BLOCK))
        blocks = grown.view(grown.shape[0] // BLOCK, BLOCK, -1, BLOCK)
        scale = blocks.abs().amax((1, 3)) / LARGEST
        whole = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: wide.shape[0], : wide.shape[1]]
        written[name], written[f"{name}_scale_inv"] = (wide / whole).to(FP8), scale
    save_file(written, folder / "model.safetensors")
    path = folder / "config.json"
    scheme = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": scheme}))
    return folder


ONE, SEVERAL, RANKS = "channels", "channels, 3 ranks", 3
"""The same weights by one rank and by RANKS, which divide the heads of SmolLM2-135M."""
VARIANTS = ("fp32", ONE, SEVERAL, "channels, transformers", "channels by the largest, transformers", "blocks")


def nats_of(variant: str, folder: Path, windows: list[list[int]]) -> list[float]:
    """Of each token, by one of VARIANTS."""
    if variant == "blocks":
        with tempfile.TemporaryDirectory() as made:
            return ours(write_blocks(folder, Path(made, folder.name)), windows, None)
    if variant.endswith("transformers"):
        return reference(folder, windows, by_channels if variant.startswith("channels,") else by_largest)
    return ours(folder, windows, None if variant == "fp32" else "Fp8", RANKS if variant == SEVERAL else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--variants", nargs="*", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    options = parser.parse_args()
    tokens = Tokenizer(options.model).encode(TEXT.read_text())
    windows = [tokens[at * WINDOW : (at + 1) * WINDOW] for at in range(options.windows)]
    found = json.loads(options.json.read_text())["variants"] if options.json.is_file() else {}
    by_token = dict[str, list[float]]()
    for variant in options.variants:
        began = time.monotonic()
        by_token[variant] = nats_of(variant, options.model, windows)
        nats = sum(by_token[variant])
        perplexity = math.exp(nats / (len(windows) * (WINDOW - 1)))
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        found[variant] = {"date": date, "nats": round(nats, 2), "perplexity": round(perplexity, 5)}
        print(f"{variant:40} {perplexity:9.4f}  {time.monotonic() - began:5.0f} s", flush=True)
        if "fp32" in found:
            for one in found.values():
                one["overFp32"] = round(one["perplexity"] / found["fp32"]["perplexity"] - 1, 5)
        if {ONE, SEVERAL} <= by_token.keys():
            pairs = zip(by_token[ONE], by_token[SEVERAL], strict=True)
            apart = [abs(one - several) for one, several in pairs]
            found[SEVERAL]["meanFromOneRank"] = round(sum(apart) / len(apart), 5)
            found[SEVERAL]["mostFromOneRank"] = round(max(apart), 5)
        content = {
            "model": options.model.name,
            "tokens": len(windows) * WINDOW,
            "graphpod": __version__,
            "torch": torch.__version__,
            "variants": found,
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
