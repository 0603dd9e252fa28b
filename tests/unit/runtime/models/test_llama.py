"""Our Llama against transformers on random weights."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from graphpod_policy import Policy
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.inputs import inputs_of
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.sequence import Chunk, PrefillBatch, Sequence
from graphpod_runtime.layers.rope import rope_tables
from tests.unit.runtime.conftest import FAMILIES, random_prompts, write_family, write_llama


def prefill_logits(runner: Runner, prompt: list[int]) -> torch.Tensor:
    """Logits of every prompt token, by the engine's own eager pass."""
    engine = runner._engine
    pages = runner.pages.take(-(-len(prompt) // runner.config.page_size))
    sequence = Sequence("0", prompt, len(prompt), 1, pages=pages)
    inputs = inputs_of(PrefillBatch((Chunk(sequence, 0, len(prompt)),)), runner.config.page_size)
    with torch.no_grad():
        engine.attention.plan(inputs.metadata)
        (hidden,) = engine.passes[inputs.phase].eager(inputs, engine.attention.run, inputs.count)
        return engine.model.head(hidden)


@pytest.mark.parametrize(("tied", "heads", "kv_heads"), [(True, 9, 3), (False, 9, 3), (False, 4, 4), (True, 4, 1)])
def test_logits_equal_transformers(
    tmp_path: Path, started: Callable[..., Runner], tied: bool, heads: int, kv_heads: int
) -> None:
    folder = write_llama(tmp_path, tied=tied, heads=heads, kv_heads=kv_heads)
    runner = started(Policy.Disabled, Policy.Disabled, folder=folder)
    (prompt,) = random_prompts(1, shortest=30, longest=32)
    with torch.no_grad():
        expected = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)(torch.tensor([prompt])).logits[0]
    difference = (prefill_logits(runner, prompt) - expected).abs().max() / expected.abs().max()
    assert difference <= 1e-4


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_its_relatives_equal_transformers(
    tmp_path: Path, started: Callable[..., Runner], family: str, tied: bool
) -> None:
    folder = write_family(tmp_path, family, tied=tied)
    runner = started(folder=folder)
    (prompt,) = random_prompts(1, shortest=30, longest=32)
    with torch.no_grad():
        reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        expected = reference(torch.tensor([prompt])).logits[0]
    difference = (prefill_logits(runner, prompt) - expected).abs().max() / expected.abs().max()
    assert difference <= 1e-4


def test_rotary_tables_equal_transformers_bit_for_bit() -> None:
    config = LlamaConfig(hidden_size=128, num_attention_heads=2, rope_theta=100000.0, max_position_embeddings=8192)
    embedding = LlamaRotaryEmbedding(config)
    for dtype in (torch.float32, torch.bfloat16):
        expected = embedding(torch.zeros(1, dtype=dtype), torch.arange(8192)[None])
        cosines, sines = rope_tables(8192, 64, 100000.0, dtype)
        sines[..., :32].neg_()
        assert torch.equal(cosines[:, 0], expected[0][0])
        assert torch.equal(sines[:, 0], expected[1][0])


def test_greedy_text_equals_transformers_over_chunks_and_pages(
    llama_folder: Path, started: Callable[..., Runner]
) -> None:
    runner = started(Policy.Disabled, Policy.Disabled)
    prompts = random_prompts(6)
    reference = LlamaForCausalLM.from_pretrained(llama_folder, dtype=torch.float32)
    expected = [
        reference.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0)[
            0, len(prompt) :
        ].tolist()
        for prompt in prompts
    ]
    assert generate(runner, prompts, 12) == expected
