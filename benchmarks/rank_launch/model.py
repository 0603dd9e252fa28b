"""A model so small that the host's work is most of a pass."""

from pathlib import Path

import torch

VOCABULARY, CONTEXT = 4352, 4096


def write(folder: Path) -> Path:
    """Its folder, in `folder`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from benchmarks.front_streams.model import write_tokenizer

    torch.manual_seed(0)
    path = folder / "tiny"
    shape = LlamaConfig(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96, num_hidden_layers=2,
        vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(shape).eval().save_pretrained(path)
    write_tokenizer(path, VOCABULARY)
    return path
