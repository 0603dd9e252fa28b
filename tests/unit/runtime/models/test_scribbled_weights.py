"""A file of weights, whose author may write anything: tensors, or one short error that names the file."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.models import checkpoint
from graphpod_runtime.models.checkpoint import tensors
from graphpod_runtime.models.loader import load_model
from tests.unit.runtime.conftest import write_llama

ONE = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def safetensors(header: Any, data: int = 16, length: int | None = None) -> bytes:
    """A file of this header and so many bytes of weights. `length`: what it says of its header's."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(content) if length is None else length) + content + bytes(data)


def test_what_is_whole_is_read(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors({"a": ONE}))
    assert [(name, list(tensor.shape)) for _, name, tensor in tensors(tmp_path)] == [("a", [2, 2])]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01\x02",
        safetensors({"a": ONE}, length=1 << 63),
        safetensors({"a": ONE}, length=(1 << 64) - 1),
        safetensors(b'{"a":', length=1000),
        safetensors(b'{"a":'),
        safetensors(b"\xff\xfe{}"),
        safetensors(b"[]"),
        safetensors(b'{"a":' * 100_000),
        safetensors(b"{" + b" " * 100_000_000 + b"}"),
        safetensors({"a": ONE, "b": ONE}),
        safetensors({"a": ONE}, data=15),
        safetensors({"a": ONE}, data=64),
        safetensors({"a": ONE | {"shape": [1 << 38], "data_offsets": [0, 1 << 40]}}),
        safetensors({"a": ONE | {"data_offsets": [-1, 16]}}),
        safetensors({"a": ONE | {"data_offsets": [16, 0]}}),
        safetensors({"a": ONE | {"shape": [1 << 40, 1 << 40]}}),
        safetensors({"a": ONE | {"shape": [1 << 63, 0], "data_offsets": [0, 0]}}, data=0),
        safetensors({"a": ONE | {"shape": [1] * 3 + [4] + [1] * 100_000}}),
        safetensors({"a": ONE | {"dtype": "F99"}}),
        safetensors({"a": ONE | {"dtype": "F" * 1_000_000}}),
        safetensors({"a": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}, data=3),
        safetensors({"a" * 1_000_000: ONE}),
        safetensors({"__metadata__": {"format": 5}, "a": ONE}),
        safetensors(b'{"\\ud800": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}'),
    ],
    ids=lambda content: f"{content[:60]!r}",
)
def test_what_is_none_is_refused_by_its_path_in_few_words(tmp_path: Path, content: bytes) -> None:
    (path := tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelInvalid, match=str(path)) as refused:
        list(tensors(tmp_path))
    said = str(refused.value)
    assert said.endswith("copy it again")
    assert len(said) < len(str(path)) + 400
    assert "\n" not in said


def test_of_many_tensors_only_those_that_the_model_has_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapping 400 000 of them took 8 s, without a word."""
    ignored = {f"model.layers.{at}.self_attn.rotary_emb.inv_freq": ONE for at in range(99)}
    header = {name: one | {"data_offsets": [16 * at, 16 * at + 16]} for at, (name, one) in enumerate(ignored.items())}
    mapped, of = list[str](), checkpoint._tensor
    write_llama(tmp_path)
    (tmp_path / "more.safetensors").write_bytes(safetensors(header, data=16 * 99))

    def counted(content: Any, file: Path, name: str) -> Tensor:
        mapped.append(name)
        return of(content, file, name)

    monkeypatch.setattr(checkpoint, "_tensor", counted)
    load_model(tmp_path, torch.float32, 64)
    assert mapped
    assert not ignored.keys() & set(mapped)
