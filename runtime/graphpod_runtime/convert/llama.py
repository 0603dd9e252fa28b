"""The Llama architecture of GGUF: hyper-parameters, names and the row order of q and k.

Names and the permutation are those of llama.cpp's `convert_hf_to_gguf.py` (class LlamaModel), read backwards.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphpod_policy.model.depth import MOST_LAYERS
from graphpod_runtime.convert.problem import ConvertError
from graphpod_runtime.convert.source import Source

ARCHITECTURE = "llama"

OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the Llama of one file looks like; sizes in elements."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    rope_theta: float
    rms_epsilon: float
    tied: bool

    @classmethod
    def of(cls, source: Source) -> "Shape":
        """Read and check; ConvertError for another architecture or a tensor this converter does not know."""
        architecture = source.need("general.architecture")
        if architecture != ARCHITECTURE:
            raise ConvertError(
                f"{source.path}: architecture {architecture!r} cannot be converted, only {ARCHITECTURE!r} can; "
                "use the model's safetensors folder as it is published"
            )
        heads = source.count("llama.attention.head_count")
        hidden = source.count("llama.embedding_length")
        shape = cls(
            layers=source.count("llama.block_count", most=MOST_LAYERS),
            hidden=hidden,
            intermediate=source.count("llama.feed_forward_length"),
            heads=heads,
            kv_heads=source.count("llama.attention.head_count_kv", heads),
            head_dim=source.count("llama.attention.key_length", hidden // heads),
            vocabulary=source.shape("token_embd.weight")[0],
            context=source.count("llama.context_length"),
            rope_theta=_float32(source.positive("llama.rope.freq_base", 10000.0)),
            rms_epsilon=_float32(source.positive("llama.attention.layer_norm_rms_epsilon")),
            tied="output.weight" not in source.names,
        )
        known = set(shape.names())
        if unknown := sorted(source.names - known):
            raise ConvertError(
                f"{source.path}: {len(unknown)} tensor(s) have no place in a plain Llama, first {unknown[0]!r}; "
                "biases, expert layers and scaled rope frequencies are not converted"
            )
        if missing := sorted(known - source.names):
            raise ConvertError(
                f"{source.path}: {len(missing)} tensor(s) of a {shape.layers}-layer Llama are missing, "
                f"first {missing[0]!r}; convert a complete GGUF file"
            )
        return shape

    def names(self) -> dict[str, str]:
        """GGUF tensor name -> Hugging Face name, for every tensor this model must have."""
        outer = {gguf: name for gguf, name in OUTER.items() if not (self.tied and gguf == "output.weight")}
        layers = {
            f"blk.{layer}.{gguf}": f"model.layers.{layer}.{name}"
            for layer in range(self.layers)
            for gguf, name in LAYER.items()
        }
        return outer | layers

    def tensors(self, source: Source) -> Iterator[tuple[str, np.ndarray]]:
        """(Hugging Face name, float32 array in Hugging Face row order), one at a time."""
        for gguf, name in self.names().items():
            weight = source.tensor(gguf)
            if name.endswith("q_proj.weight"):
                weight = unpermute(weight, self.heads)
            elif name.endswith("k_proj.weight"):
                weight = unpermute(weight, self.kv_heads)
            yield name, weight

    def config(self, dtype: str, special: dict[str, int]) -> dict[str, Any]:
        """config.json; `special` holds bos/eos/pad token ids as far as the tokenizer has them."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.rms_epsilon,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": self.tied,
            "torch_dtype": dtype,
            **special,
        }


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """[heads * head_dim, hidden] from llama.cpp's row order to Hugging Face's.

    llama.cpp rotates neighbouring pairs of rows, Hugging Face the two halves of a head, so its converter
    interleaved the halves: row 2i+j of a head there is row j * head_dim/2 + i here.
    """
    rows, hidden = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, hidden)
    return pairs.swapaxes(1, 2).reshape(rows, hidden)


def _float32(value: float) -> float:
    """The decimal a person wrote before it was stored as float32 (1e-05, not 9.999999747378752e-06)."""
    return float(str(np.float32(value)))
