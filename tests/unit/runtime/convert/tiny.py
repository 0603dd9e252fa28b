"""A llama of a few kilobytes written as GGUF: two layers, four heads over two, every weight known."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, CONTEXT = 2, 64, 96, 4, 2, 128
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"


def alphabet() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes, in byte order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


MERGES = ["Ġ Ġ", "h e", "l l", "he ll"]
TOKENS = [*SPECIAL, *alphabet(), *(merge.replace(" ", "") for merge in MERGES)]


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k on the way in (LlamaModel.permute)."""
    rows, hidden = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, hidden).swapaxes(1, 2).reshape(rows, hidden)


@dataclass
class Tiny:
    """What goes into the file; a test changes one thing."""

    architecture: str = "llama"
    metadata: dict[str, Any] = field(default_factory=dict)
    leave_out: str | None = None
    extra: dict[str, np.ndarray] = field(default_factory=dict)
    quantization: GGMLQuantizationType = GGMLQuantizationType.F32
    untied: bool = False

    def weights(self) -> dict[str, np.ndarray]:
        """GGUF name -> float32 in Hugging Face row order."""
        random = np.random.default_rng(7)
        kv = HIDDEN // HEADS * KV_HEADS
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (len(TOKENS), HIDDEN),
            "output_norm.weight": (HIDDEN,),
        }
        if self.untied:
            shapes["output.weight"] = (len(TOKENS), HIDDEN)
        for layer in range(LAYERS):
            shapes |= {
                f"blk.{layer}.attn_norm.weight": (HIDDEN,),
                f"blk.{layer}.attn_q.weight": (HIDDEN, HIDDEN),
                f"blk.{layer}.attn_k.weight": (kv, HIDDEN),
                f"blk.{layer}.attn_v.weight": (kv, HIDDEN),
                f"blk.{layer}.attn_output.weight": (HIDDEN, HIDDEN),
                f"blk.{layer}.ffn_norm.weight": (HIDDEN,),
                f"blk.{layer}.ffn_gate.weight": (FFN, HIDDEN),
                f"blk.{layer}.ffn_up.weight": (FFN, HIDDEN),
                f"blk.{layer}.ffn_down.weight": (HIDDEN, FFN),
            }
        return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    def write(self, path: Path) -> Path:
        writer = GGUFWriter(path, self.architecture)
        metadata: dict[str, Any] = {
            "llama.block_count": LAYERS,
            "llama.embedding_length": HIDDEN,
            "llama.feed_forward_length": FFN,
            "llama.attention.head_count": HEADS,
            "llama.attention.head_count_kv": KV_HEADS,
            "llama.context_length": CONTEXT,
            "llama.rope.freq_base": 100000.0,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": TOKENS,
            "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)),
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.padding_token_id": 2,
            "tokenizer.chat_template": TEMPLATE,
        } | self.metadata
        for key, value in metadata.items():
            if value is None:
                continue
            if isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            elif isinstance(value, str):
                writer.add_string(key, value)
            else:
                writer.add_array(key, value)
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}
        for name, weight in (self.weights() | self.extra).items():
            if name == self.leave_out:
                continue
            kind = name.split(".")[-2]
            stored = interleave(weight, heads[kind]) if kind in heads and weight.ndim == 2 else weight
            if weight.ndim == 2:
                writer.add_tensor(name, quantize(stored, self.quantization), raw_dtype=self.quantization)
            else:
                writer.add_tensor(name, stored)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path
