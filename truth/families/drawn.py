"""Configurations by chance, from a number each: what a config.json of somebody else's may ask for, and in which words.

The size of every part, biases, tied embeddings, kinds of rotary positions, windows, caps, factors, experts. Half of
them have the names that rotary parameters had before, or leave out what their type means anyway. Each is one that
transformers takes.
"""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING

from truth.families.tiny import tiny

TYPES = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "granite", "olmo2", "smollm3"),
    *("starcoder2", "glm", "glm4", "cohere", "cohere2", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe"),
    *("deepseek_v2", "deepseek_v3", "stablelm", "olmo", "olmo3", "exaone4", "seed_oss", "arcee", "ernie4_5", "apertus"),
    *("phi", "glm4_moe", "dots1"),
)
"""Those of our own layers, and some that transformers computes."""
HEADS = ((1, 1), (3, 1), (5, 5), (6, 2), (8, 1), (4, 4), (9, 3))
WIDTHS = (2, 6, 8, 14, 16, 20, 26, 48)
"""Of a head."""
WHOLE = ("arcee", "deepseek_v2", "gemma2", "gemma3_text", "llama", "olmo", "phi")
"""Types whose hidden size is heads times width."""
FULL, SLIDING = "full_attention", "sliding_attention"
OF_CHANCE = (
    "attention_bias",
    "mlp_bias",
    "use_bias",
    "qkv_bias",
    "tie_word_embeddings",
    "norm_topk_prob",
    "use_qk_norm",
)
"""Fields that may be true or false."""
FIXED = {"deepseek_v2": ("mlp_bias", "norm_topk_prob"), "apertus": ("mlp_bias",)}
"""Of them, what is refused or read by nothing."""


def drawn(number: int) -> tuple[str, dict[str, Any]]:
    """A model type, and what its small configuration has of its own."""
    draw = random.Random(number)
    model_type = draw.choice(TYPES)
    small = tiny(model_type).to_dict()
    changes = _sizes(draw, model_type, small) | _experts(draw, small)
    layers = changes["num_hidden_layers"]
    for name in OF_CHANCE:
        if isinstance(small.get(name), bool) and name not in FIXED.get(model_type, ()):
            changes[name] = draw.random() < 0.5
    if "sliding_window" in small:
        asked = bool(small.get("use_sliding_window", True)) or draw.random() < 0.5
        window = draw.choice((1, 2, 5, 8, 17, 400))
        changes |= {"sliding_window": window} | ({"use_sliding_window": asked} if "use_sliding_window" in small else {})
        kinds = (FULL, SLIDING) if asked else (FULL,)
        if "layer_types" in small:
            changes["layer_types"] = [draw.choice(kinds) for _ in range(layers)]
    if "no_rope_layers" in small:
        changes["no_rope_layers"] = [draw.randint(0, 1) for _ in range(layers)]
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "clip_qkv"):
        if name in small and model_type != "gemma3_text":
            changes[name] = draw.choice((None, 0.5, 20.0))
    for name in (
        "embedding_multiplier",
        "residual_multiplier",
        "logits_scaling",
        "logit_scale",
    ):
        if name in small:
            changes[name] = draw.choice((0.3, 1.0, 2.5))
    if "attention_multiplier" in small:
        # By a larger one scores are so sharp that float32 itself is further from float64 than a trial allows.
        changes["attention_multiplier"] = draw.choice((0.02, 0.1, 0.3))
    rope = small.get("rope_parameters") or {}
    if "rope_theta" in rope:
        changes["rope_parameters"] = _rope(draw, model_type, _rotated(small | changes), rope)
    return model_type, changes


def _sizes(draw: random.Random, model_type: str, small: Mapping[str, Any]) -> dict[str, Any]:
    (heads, kv_heads), width = draw.choice(HEADS), draw.choice(WIDTHS)
    changes = {
        "vocab_size": draw.choice((64, 131, 257, 1001)),
        "num_hidden_layers": draw.choice((1, 2, 3, 5)),
        "intermediate_size": draw.choice((1, 37, 96, 130)),
        "num_attention_heads": heads,
    }
    if "kv_lora_rank" in small:
        rotated = draw.choice((2, 8, 10))
        latent = {"qk_rope_head_dim": rotated, "head_dim": rotated, "qk_nope_head_dim": draw.choice((4, 8))}
        latent |= {"v_head_dim": draw.choice((6, 12)), "q_lora_rank": draw.choice((None, 6, 24))}
        return changes | latent | {"num_key_value_heads": heads, "hidden_size": heads * draw.choice((8, 14))}
    if "num_key_value_heads" in small:
        changes["num_key_value_heads"] = kv_heads
    if "head_dim" in small:
        changes["head_dim"] = width
    free = "head_dim" in small and model_type not in WHOLE
    return changes | {"hidden_size": draw.choice((33, 50, 72)) if free else heads * width}


def _experts(draw: random.Random, small: Mapping[str, Any]) -> dict[str, Any]:
    named = [name for name in ("num_experts", "num_local_experts", "n_routed_experts") if small.get(name)]
    if not named:
        return {}
    experts = draw.choice((2, 3, 4, 6))
    changes: dict[str, Any] = dict.fromkeys(named, experts)
    changes["num_experts_per_tok"] = draw.choice((1, experts))
    changes |= {name: draw.choice((0, 1)) for name in ("first_k_dense_replace",) if name in small}
    changes |= {name: draw.choice((1, 2)) for name in ("n_shared_experts", "decoder_sparse_step") if name in small}
    return changes | ({"moe_intermediate_size": draw.choice((17, 40))} if small.get("moe_intermediate_size") else {})


def _rotated(config: Mapping[str, Any]) -> int:
    """The width of a head that rotates, where all of it does."""
    if "qk_rope_head_dim" in config:
        return int(config["qk_rope_head_dim"])
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _rope(draw: random.Random, model_type: str, width: int, small: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary parameters of heads of `width`. `small` are those of the type, which may rotate a part of a head."""
    part = draw.choice((0.5, 1.0)) if "partial_rotary_factor" in small and not width % 4 else 1.0
    pairs = [1.0 + 0.25 * pair for pair in range(int(width * part) // 2)]
    original = {"original_max_position_embeddings": draw.choice((140, 400))}
    kinds: tuple[dict[str, Any], ...] = (
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": draw.choice((32, 64))},
        {"rope_type": "yarn", "factor": 8.0, "mscale": 0.7, "mscale_all_dim": draw.choice((0.9, 0)), "truncate": False},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        | {"original_max_position_embeddings": draw.choice((32, 8192))},
        {"rope_type": "longrope", "factor": 4.0, "short_factor": pairs, "long_factor": [2 * one for one in pairs]}
        | original,
    )
    if model_type == "phi3":
        kinds = kinds[0], kinds[-1]
    rope = draw.choice(kinds) | {"rope_theta": draw.choice((500.0, 10000.0, 1e6))}
    return rope | ({"partial_rotary_factor": part} if "partial_rotary_factor" in small else {})


def respelt(number: int) -> Callable[[Path], None]:
    """What writes the config.json of a folder in the words of `number`: they say the same to transformers."""
    draw = random.Random(-1 - number)
    older, shorter, unnamed = (draw.random() < 0.5 for _ in range(3))

    def write(folder: Path) -> None:
        path = folder / "config.json"
        whole = json.loads(path.read_bytes())
        rope = whole.get("rope_parameters") or {}
        if older and "rope_theta" in rope:
            del whole["rope_parameters"]
            whole |= {name: rope.pop(name) for name in ("rope_theta", "partial_rotary_factor") if name in rope}
            kind = rope.pop("rope_type")
            whole["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
        if shorter:
            default = CONFIG_MAPPING[whole["model_type"]]().to_dict()
            whole = {name: value for name, value in whole.items() if name in KEPT or default.get(name, whole) != value}
        if unnamed:
            del whole["architectures"]
        path.write_text(json.dumps(whole))

    return write


KEPT = ("architectures", "hidden_size", "intermediate_size", "model_type", "num_attention_heads", "num_hidden_layers")
"""Fields that every config.json has."""
