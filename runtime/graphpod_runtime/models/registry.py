"""Architectures this engine knows, and the reading of config.json."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphpod_runtime.models.base import Model, ModelInvalid, ModelShape
from graphpod_runtime.models.llama import Llama


class Architecture(NamedTuple):
    """How one architecture is built, and what its config.json leaves unsaid."""

    build: Callable[[ModelShape, torch.dtype, int], Model]
    """(shape, dtype, max_model_len) -> the model with unset weights."""
    qkv_bias: bool = False
    qk_norm: bool = False


ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": Architecture(Llama),
    "Qwen2ForCausalLM": Architecture(Llama, qkv_bias=True),
    "Qwen3ForCausalLM": Architecture(Llama, qk_norm=True),
}
"""By `architectures[0]` of config.json."""

UNSUPPORTED_SWITCHES = ("attention_bias", "mlp_bias", "use_sliding_window")
"""config.json switches that change the arithmetic and are not built; true values are refused."""


ACTIVATION = "silu"
"""The MLP's gate, `hidden_act` of config.json."""


def read_shape(folder: Path) -> ModelShape:
    """The model's shape from `folder`/config.json. ModelInvalid when it is missing, broken or not built."""
    config = _read_json(folder / "config.json")
    if config is None:
        raise ModelInvalid(f"{folder}: no config.json; point the model at a Hugging Face style folder")
    architecture = (config.get("architectures") or ["?"])[0]
    if architecture not in ARCHITECTURES:
        raise ModelInvalid(
            f"{folder}/config.json: architecture {architecture!r} is unknown; this engine runs "
            + ", ".join(ARCHITECTURES)
        )
    for switch in UNSUPPORTED_SWITCHES:
        if config.get(switch):
            raise ModelInvalid(f"{folder}/config.json: {switch}=true is not built for {architecture}")
    activation = config.get("hidden_act", ACTIVATION)
    if activation != ACTIVATION:
        raise ModelInvalid(f"{folder}/config.json: hidden_act {activation!r} is not built; only {ACTIVATION!r} is")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ModelInvalid(f"{folder}/config.json: rope type {kind!r} is not built; only plain rotary positions are")
    try:
        heads = int(config["num_attention_heads"])
        return ModelShape(
            architecture=architecture,
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            vocab=int(config["vocab_size"]),
            max_position=int(config["max_position_embeddings"]),
            norm_eps=float(config["rms_norm_eps"]),
            rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            tied=bool(config.get("tie_word_embeddings", False)),
            eos_ids=_eos_ids(folder, config),
            qkv_bias=ARCHITECTURES[architecture].qkv_bias,
            qk_norm=ARCHITECTURES[architecture].qk_norm,
        )
    except KeyError as error:
        raise ModelInvalid(f"{folder}/config.json: field {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise ModelInvalid(f"{folder}/config.json: a field has no usable value ({error})") from error


def build(shape: ModelShape, dtype: torch.dtype, max_model_len: int) -> Model:
    """The model with unset weights."""
    return ARCHITECTURES[shape.architecture].build(shape, dtype, max_model_len)


def _eos_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    generation = _read_json(folder / "generation_config.json") or {}
    value = generation.get("eos_token_id", config.get("eos_token_id"))
    return () if value is None else tuple(value) if isinstance(value, list) else (int(value),)


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelInvalid(f"{path}: not JSON ({error}); copy the model again") from error
    if not isinstance(content, dict):
        raise ModelInvalid(f"{path}: expected an object; copy the model again")
    return content
