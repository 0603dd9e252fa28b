"""Checkpoints in FP8, made of a plain one as its publishers make them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

FP8 = torch.float8_e4m3fn
WEIGHTS = "model.safetensors"

BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
TENSOR = {"quant_method": "fp8", "activation_scheme": "static"}


def compressed(strategy: str, *, static: bool = False, ignore: tuple[str, ...] = ("lm_head",)) -> dict[str, Any]:
    """As llm-compressor writes it."""
    common = {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None}
    weights = common | {"strategy": strategy, "dynamic": False}
    inputs = common | {"strategy": "tensor" if static else "token", "dynamic": not static}
    if strategy == "block":
        weights["block_structure"] = [128, 128]
        inputs |= {"strategy": "group", "group_size": 128}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": group},
        "ignore": list(ignore),
        "kv_cache_scheme": None,
    }


FORMATS: dict[str, dict[str, Any]] = {
    "blocks": BLOCKS,
    "one scale, static": TENSOR,
    "compressed, channels": compressed("channel"),
    "compressed, one scale, static": compressed("tensor", static=True),
    "compressed, blocks": compressed("block"),
    "compressed, a layer left out": compressed("channel", ignore=("lm_head", "re:.*layers\\.1\\..*")),
}
ACTIVATIONS = 0.05
"""The static scale."""


def quantize(folder: Path, config: dict[str, Any], covers: Callable[[str], bool] = lambda name: True) -> None:
    """Rewrites the plain checkpoint in `folder`."""
    tensors, written = load_file(folder / WEIGHTS), dict[str, Tensor]()
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        if "_proj" in module and name.endswith(".weight") and covers(module):
            written |= quantized(module, tensor, config)
        else:
            written[name] = tensor
    save_file(written, folder / WEIGHTS)
    edit(folder, quantization_config=config)


def edit(folder: Path, **changes: object) -> None:
    """Fields of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def quantized(module: str, weight: Tensor, config: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors that `module` has in the checkpoint."""
    wide = weight.float()
    if "weight_block_size" in config or strategy(config) == "block":
        outputs, inputs = wide.shape
        scale = torch.stack(
            [
                torch.stack([block.abs().max() / 448 for block in rows.split(128, dim=1)])
                for rows in wide.split(128, dim=0)
            ]
        )
        whole = scale.repeat_interleave(128, 0)[:outputs].repeat_interleave(128, 1)[:, :inputs]
        name = "weight_scale_inv" if "weight_block_size" in config else "weight_scale"
        return {f"{module}.weight": (wide / whole).to(FP8), f"{module}.{name}": scale}
    if strategy(config) == "channel":
        scale = wide.abs().amax(1, keepdim=True) / 448
        found = {f"{module}.weight_scale": scale}
    else:
        scale = wide.abs().max() / 448
        found = {f"{module}.weight_scale": scale.view(1) if strategy(config) else scale}
    if static(config):
        found[f"{module}.input_scale"] = torch.tensor(ACTIVATIONS)
    return found | {f"{module}.weight": (wide / scale).to(FP8)}


def strategy(config: dict[str, Any]) -> str | None:
    """Of compressed-tensors."""
    groups = config.get("config_groups")
    return groups["group_0"]["weights"]["strategy"] if groups else None


def static(config: dict[str, Any]) -> bool:
    """Whether activations have scales in the checkpoint."""
    groups = config.get("config_groups")
    return not groups["group_0"]["input_activations"]["dynamic"] if groups else config["activation_scheme"] == "static"
