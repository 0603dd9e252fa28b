"""Draft heads that are nearly a model's first layer: right now and then, about tokens that no layer above it turns."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from graphpod_policy import SpeculativeMethod

COPIED = ("head_dim", "rms_norm_eps", "rope_theta", "rope_parameters", "max_position_embeddings")
LAYER = "model.layers.0."


def write_head(model: Path, folder: Path, method: SpeculativeMethod) -> Path:
    """Writes the head of `method` for the Llama in `model` to `folder`."""
    config, weights = json.loads((model / "config.json").read_bytes()), load_file(model / "model.safetensors")
    config = config.get("text_config", config)
    hidden = config["hidden_size"]
    copied = {name: config[name] for name in COPIED if config.get(name) is not None}
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
    made = {name: config[name] for name in sizes} | copied
    made |= {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1, "hidden_act": "silu"}
    (folder / "config.json").write_text(json.dumps(made))
    layer = {name.removeprefix(LAYER): one.float() for name, one in weights.items() if name.startswith(LAYER)}
    # The layer's norm of its input, as the number that it mostly is: EAGLE has none.
    sharpness = weights["model.embed_tokens.weight"].float().pow(2).mean().rsqrt()
    generator = torch.Generator().manual_seed(0)
    seen = 0.001 * torch.randn(hidden, hidden, generator=generator)
    tensors = {"fc.weight": torch.cat((sharpness * torch.eye(hidden), seen), 1)}
    for name, one in layer.items():
        if name.startswith(("self_attn.", "mlp.")) and name.endswith("_proj.weight"):
            tensors[f"layers.0.{name}"] = (
                sharpness * one if name.endswith(("o_proj.weight", "down_proj.weight")) else one
            )
    tensors["layers.0.post_attention_layernorm.weight"] = layer["post_attention_layernorm.weight"]
    save_file({name: one.contiguous() for name, one in tensors.items()}, folder / "model.safetensors")
    return folder
