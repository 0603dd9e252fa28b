"""A GGUF file, whose author may write anything: a folder, or one error and no folder."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_runtime.convert import ConvertError, convert
from tests.scribbles import read_or
from tests.tries import tries
from tests.unit.runtime.convert.tiny import Tiny

HEAD = 12_000
"""Bytes from the start in which metadata and the places of tensors are."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return Tiny().write(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("converted")


def is_converted_or_refused(folder: Path, content: bytes) -> None:
    gguf, out = folder / "model.gguf", folder / "out"
    gguf.write_bytes(content)
    with read_or(ConvertError):
        convert(gguf, out)
        for file in out.iterdir():
            file.unlink()
        out.rmdir()
    assert list(folder.iterdir()) == [gguf]


@tries(40)
@given(st.integers(4, HEAD), st.binary(min_size=1, max_size=9))
@example(8, b"\xff" * 8)
@example(16, b"\xff" * 8)
def test_any_bytes_of_a_gguf_may_be_others(folder: Path, whole: bytes, at: int, noise: bytes) -> None:
    is_converted_or_refused(folder, whole[:at] + noise + whole[at + len(noise) :])


KEYS = (
    "llama.attention.head_count", "llama.embedding_length", "llama.block_count", "llama.feed_forward_length",
    "llama.context_length", "llama.attention.head_count_kv", "llama.rope.freq_base", "tokenizer.ggml.tokens",
    "tokenizer.ggml.merges", "tokenizer.ggml.token_type", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.pre",
    "tokenizer.chat_template", "general.architecture", "llama.attention.layer_norm_rms_epsilon",
)  # fmt: skip
VALUES: tuple[Any, ...] = (0, 1, 3, 2**32 - 1, "x", "", 0.5, float("nan"), [1, 2], ["a"], ["a", "a"], True)


@tries(20)
@given(st.sampled_from(KEYS), st.sampled_from(VALUES))
@example("llama.attention.head_count", 0)
@example("llama.attention.head_count", 3)
@example("llama.block_count", 2**32 - 1)
@example("tokenizer.ggml.eos_token_id", 2**32 - 1)
@example("tokenizer.ggml.merges", ["a"])
@example("tokenizer.ggml.token_type", [1, 2])
@example("tokenizer.chat_template", 1)
def test_any_metadata_of_a_gguf_may_be_anything(folder: Path, key: str, value: Any) -> None:
    path = Tiny(metadata={key: value}).write(folder / "model.gguf")
    is_converted_or_refused(folder, path.read_bytes())
