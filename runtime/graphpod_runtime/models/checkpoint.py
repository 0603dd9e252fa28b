"""Tensors of a folder of safetensors files."""

import json
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from graphpod_runtime.base.errors import ModelInvalid


def tensors(folder: Path) -> Iterator[tuple[Path, str, Tensor]]:
    """Every (file, name, tensor) of the folder's safetensors files; each tensor is mapped, not read, until used."""
    for file in _files(folder):
        try:
            with safe_open(file, framework="pt") as content:
                for name in content.keys():  # noqa: SIM118 (not a dict: iterating it yields nothing)
                    yield file, name, content.get_tensor(name)
        except SafetensorError as error:
            raise ModelInvalid(f"{file}: not a whole safetensors file ({error}); copy it again") from error


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise ModelInvalid(f"{index}: not a safetensors index ({error}); copy it again") from error
        files = [folder / name for name in names]
        for file in files:
            if not file.is_file():
                raise ModelInvalid(f"{file}: is missing, though {index.name} lists it; copy the model again")
        return files
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        found = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise ModelInvalid(
            f"{folder}: no *.safetensors file (found {found}); convert the weights or copy the whole folder"
        )
    return files
