"""Engines on a CUDA device over tiny random models; the CPU's tests say what they must do."""

from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from graphpod_policy import Device
from tests.unit.runtime.conftest import llama_folder, started  # noqa: F401

torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(scope="session")
def device() -> Device:
    return Device.Cuda


@pytest.fixture(scope="session")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Qwen3 with heads as wide as flashinfer's kernels want them."""
    folder = tmp_path_factory.mktemp("wide")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=1009,
        hidden_size=512,
        head_dim=128,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.1,
        bos_token_id=1,
        eos_token_id=2,
    )
    Qwen3ForCausalLM(config).eval().save_pretrained(folder)
    return folder
