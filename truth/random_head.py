"""Draft heads of random weights: what they draft does not matter, but that they draft."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from graphpod_policy import SpeculativeMethod
from graphpod_policy.model.draft_head import DRAFT_VOCAB, FORMS

DEVIATION = 0.2


def random_head(model: Path, method: SpeculativeMethod) -> Path:
    """The folder of a head of `method` for the model whose config.json is in the folder `model`."""
    folder = model.with_name(f"{model.name}-{method.lower()}")
    folder.mkdir(exist_ok=True)
    config = json.loads((model / "config.json").read_bytes())
    config = config.get("text_config", config)
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    plain = {"num_hidden_layers": 1, "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "hidden_act": "silu"}
    made = {name: config[name] for name in sizes} | plain | {"architectures": [FORMS[method][0]]}
    hidden, wide = made["hidden_size"], made["intermediate_size"]
    q, kv = (made[name] * made["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    layer = {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
        "post_attention_layernorm": (hidden,),
    }
    if method is SpeculativeMethod.Eagle3:
        made[DRAFT_VOCAB] = drafted = made["vocab_size"] // 2
        layer |= {f"self_attn.{one}_proj": (rows, 2 * hidden) for one, rows in (("q", q), ("k", kv), ("v", kv))}
        layer |= {"input_layernorm": (hidden,), "hidden_norm": (hidden,)}
        shapes = {"fc": (hidden, 3 * hidden), "norm": (hidden,), "lm_head": (drafted, hidden)}
        shapes |= {f"midlayer.{name}": shape for name, shape in layer.items()}
    else:
        shapes = {"fc": (hidden, 2 * hidden)} | {f"layers.0.{name}": shape for name, shape in layer.items()}
    (folder / "config.json").write_text(json.dumps(made))
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"{name}.weight": DEVIATION * torch.randn(shape, generator=generator) + (1.0 if len(shape) == 1 else 0.0)
        for name, shape in shapes.items()
    }
    if method is SpeculativeMethod.Eagle3:
        # Every other token of the model.
        tensors["d2t"] = torch.arange(drafted)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder
