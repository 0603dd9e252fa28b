"""Engines on a CUDA device over tiny random models; the CPU's tests say what they must do."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from graphpod_policy import Device, Policy
from graphpod_runtime.engine.runner import Runner
from tests.unit.runtime.conftest import engine_config, write_llama

torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied tiny Llama with three query heads per key head."""
    return write_llama(tmp_path_factory.mktemp("llama"))


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


@pytest.fixture
def started(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Runner]:
    """started(prefill, decode, **config changes) -> a Ready runner on the GPU."""
    # The engine refuses GPUs until all of this is proved.
    monkeypatch.setattr("graphpod_runtime.engine.start.not_built", lambda features, request: ())

    def start(prefill: Policy = Policy.Breakable, decode: Policy = Policy.Full, **changes: Any) -> Runner:
        config = engine_config(changes.pop("folder", llama_folder), prefill, decode, **changes)
        config = dataclasses.replace(config, features=dataclasses.replace(config.features, device=Device.Cuda))
        runner = Runner(config, lambda report: None)
        runner.start()
        return runner

    return start
