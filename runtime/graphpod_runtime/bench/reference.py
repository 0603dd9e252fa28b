"""Hugging Face transformers as a reference: greedy `generate` with its own KV cache, as its users call it."""

from pathlib import Path

import torch

from graphpod_policy import Device
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.bench.figures.meter import Generate


def transformers_generate(folder: Path, dtype: str, device: Device, *, random: bool) -> Generate:
    """Its `generate` for prompts of equal length, every token on the host."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if random:
        with torch.device(device.value):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=dtype_of(dtype))
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype_of(dtype)).to(device.value)
    model.eval()

    def generate(prompts: list[list[int]], new: int) -> object:
        tokens = torch.tensor(prompts, device=device.value)
        with torch.no_grad():
            answer = model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=new,
                min_new_tokens=new,
                do_sample=False,
                pad_token_id=0,
            )
        return answer[:, tokens.shape[1] :].tolist()

    return generate
