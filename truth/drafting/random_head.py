"""Draft heads of random weights: what they draft does not matter, but that they draft."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from graphpod_policy import SpeculativeMethod
from graphpod_policy.model.draft_head import DRAFT_VOCAB, FORMS

DEVIATION = 0.2

Shape = tuple[int, ...]


def random_head(model: Path, method: SpeculativeMethod) -> Path:
    """The folder of a head of `method` for the model whose config.json is in the folder `model`; of Mtp that itself."""
    if method is SpeculativeMethod.Mtp:
        return _mtp_layer(model)
    folder = model.with_name(f"{model.name}-{method.lower()}")
    folder.mkdir(exist_ok=True)
    config = json.loads((model / "config.json").read_bytes())
    config = config.get("text_config", config)
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    plain = {"num_hidden_layers": 1, "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "hidden_act": "silu"}
    made = {name: config[name] for name in sizes} | plain | {"architectures": [FORMS[method][0]]}
    hidden, q, kv = _widths(made)
    layer = _layer(made)
    if method is SpeculativeMethod.Eagle3:
        made[DRAFT_VOCAB] = drafted = made["vocab_size"] // 2
        layer |= {f"self_attn.{one}_proj": (rows, 2 * hidden) for one, rows in (("q", q), ("k", kv), ("v", kv))}
        layer |= {"input_layernorm": (hidden,), "hidden_norm": (hidden,)}
        shapes = {"fc": (hidden, 3 * hidden), "norm": (hidden,), "lm_head": (drafted, hidden)}
        shapes |= {f"midlayer.{name}": shape for name, shape in layer.items()}
    else:
        shapes = {"fc": (hidden, 2 * hidden)} | {f"layers.0.{name}": shape for name, shape in layer.items()}
    (folder / "config.json").write_text(json.dumps(made))
    tensors = _drawn({f"{name}.weight": shape for name, shape in shapes.items()})
    if method is SpeculativeMethod.Eagle3:
        # Every other token of the model.
        tensors["d2t"] = torch.arange(drafted)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def _mtp_layer(model: Path) -> Path:
    """MiMo's, next to whatever computes the model in the folder `model`: that has no weights there."""
    config = json.loads((model / "config.json").read_bytes())
    hidden, q, kv = _widths(config)
    layer = _layer(config) | {f"{name}_layernorm": (hidden,) for name in ("input", "token", "hidden", "final")}
    shapes: dict[str, Shape] = {f"{name}.weight": shape for name, shape in layer.items()}
    shapes |= {"input_proj.weight": (hidden, 2 * hidden)}
    shapes |= {f"self_attn.{one}_proj.bias": (rows,) for one, rows in (("q", q), ("k", kv), ("v", kv))}
    tensors = _drawn({f"model.mtp_layers.0.{name}": shape for name, shape in shapes.items()})
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    return model


def _widths(sizes: Mapping[str, Any]) -> tuple[int, int, int]:
    """Of a hidden state, of all queries and of all keys."""
    q, kv = (sizes[name] * sizes["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    return sizes["hidden_size"], q, kv


def _layer(sizes: Mapping[str, Any]) -> dict[str, Shape]:
    """Weights of a decoder layer without a norm in front."""
    (hidden, q, kv), wide = _widths(sizes), sizes["intermediate_size"]
    return {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
        "post_attention_layernorm": (hidden,),
    }


def _drawn(shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Tensors by name; weights of norms are around 1."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: DEVIATION * torch.randn(shape, generator=generator) + (1.0 if "norm" in name else 0.0)
        for name, shape in shapes.items()
    }
