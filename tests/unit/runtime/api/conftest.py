"""A random Llama with a tokenizer of bytes, and engines over it."""

from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from graphpod_policy import EngineConfig, Policy
from tests.unit.runtime.conftest import engine_config
from tests.unit.runtime.front.test_real_engine import write_llama

PROMPTS = ["The capital of France is", "日本語", "a", "one two three four five six seven eight nine ten eleven"]


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    """The folder, and transformers' model."""
    folder = tmp_path_factory.mktemp("llama")
    return folder, write_llama(folder)


def eager(folder: Path, **changes: object) -> EngineConfig:
    """An engine that starts at once: nothing is captured."""
    return engine_config(folder, Policy.Disabled, Policy.Disabled, **changes)


def captured(folder: Path) -> EngineConfig:
    """An engine on graphs of few sizes."""
    return engine_config(folder, Policy.Breakable, Policy.Full)
