"""MiMo checkpoints: the body is a Qwen2's, and a layer next to it drafts."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional
from transformers import Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm

from tests.unit.runtime.conftest import write_family

HEAD = "model.mtp_layers.0."


def write_mimo(folder: Path, *, layers: int = 1, seen: float = 0.001, **settings: Any) -> Path:
    """A MiMo whose MTP layer is nearly its first layer: right about tokens that no layer above it turns.
    `seen`: how large what it sees of hidden states is."""
    write_family(folder, "qwen2", tied=False, num_hidden_layers=layers, num_attention_heads=6, **settings)
    path = folder / "config.json"
    config = json.loads(path.read_bytes())
    path.write_text(json.dumps(config | {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}))
    weights = load_file(folder / "model.safetensors")
    hidden, first = config["hidden_size"], "model.layers.0."
    # The layer's input is the embedding again, but for what the norm of tokens took from each.
    size = weights["model.embed_tokens.weight"].pow(2).mean().sqrt()
    states = seen * torch.randn(hidden, hidden, generator=torch.Generator().manual_seed(0))
    head = {name.removeprefix(first): one.clone() for name, one in weights.items() if name.startswith(first)}
    head |= {
        "input_proj.weight": torch.cat((states, size * torch.eye(hidden)), 1),
        "token_layernorm.weight": torch.ones(hidden),
        "hidden_layernorm.weight": weights["model.layers.0.post_attention_layernorm.weight"].clone(),
        "final_layernorm.weight": weights["model.norm.weight"].clone(),
    }
    save_file(weights | {f"{HEAD}{name}": one for name, one in head.items()}, folder / "model.safetensors")
    return folder


@torch.no_grad()
def drafts_by_mimo(folder: Path, text: list[int], count: int) -> list[int]:
    """What the checkpoint's layer drafts behind `text`, as the model's published code has it, without a cache."""
    weights = load_file(folder / "model.safetensors")
    target = _target(folder, weights)
    config, body = target.config, target.model
    own = {name.removeprefix(HEAD): one for name, one in weights.items() if name.startswith(HEAD)}
    layer = Qwen2DecoderLayer(config, 0).eval()
    missing, _ = layer.load_state_dict(own, strict=False)
    assert not missing

    def normed(x: Tensor, name: str) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], own[f"{name}_layernorm.weight"], config.rms_norm_eps)

    states, tokens = body(torch.tensor([text])).last_hidden_state[:, :-1], list(text[1:])
    while len(tokens) < len(text) - 1 + count:
        embedded = body.embed_tokens(torch.tensor([tokens]))
        both = torch.cat((normed(states, "hidden"), normed(embedded, "token")), -1)
        positions = torch.arange(len(tokens))[None]
        x = functional.linear(both, own["input_proj.weight"])
        mask = torch.full((len(tokens), len(tokens)), -torch.inf).triu(1)[None, None]
        found = layer(x, attention_mask=mask, position_embeddings=body.rotary_emb(x, positions))
        last = normed((found[0] if isinstance(found, tuple) else found)[:, -1:], "final")
        tokens.append(int(target.lm_head(last)[0, 0].argmax()))
        states = torch.cat((states, last), 1)
    return tokens[len(text) - 1 :]


def _target(folder: Path, weights: dict[str, Tensor]) -> Qwen2ForCausalLM:
    config = json.loads((folder / "config.json").read_bytes())
    model = Qwen2ForCausalLM(Qwen2ForCausalLM.config_class.from_dict(config | {"architectures": None})).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not missing
    assert all(name.startswith(HEAD) for name in unexpected)
    assert isinstance(model.model.norm, Qwen2RMSNorm)
    return model
