"""A vocabulary of bytes, and a tiny model over it that has more token ids than the tokenizer."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from llguidance import LLTokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.grammar.vocabulary import read_vocabulary
from tests.unit.runtime.conftest import started  # noqa: F401  a fixture
from tests.unit.runtime.front.conftest import byte_tokenizer

END, VOCABULARY = 256, 300


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama whose logits are far from flat, with the tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("bytes")
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=96, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=3, max_position_embeddings=512, initializer_range=0.2, bos_token_id=1, eos_token_id=END,
    )  # fmt: skip
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def vocabulary(model_folder: Path) -> LLTokenizer:
    return read_vocabulary(model_folder, VOCABULARY, (END,))


@pytest.fixture
def runner(started: Callable[..., Runner], model_folder: Path) -> Runner:  # noqa: F811
    return started(folder=model_folder)
