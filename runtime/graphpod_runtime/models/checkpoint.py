"""Tensors of a folder of safetensors files."""

from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.models.checkpoint_files import files_of


def tensors(folder: Path) -> Iterator[tuple[Path, str, Tensor]]:
    """Every (file, name, tensor) of the folder's safetensors files; each tensor is mapped, not read, until used."""
    for file in files_of(folder):
        try:
            with safe_open(file, framework="pt") as content:
                for name in content.keys():  # noqa: SIM118 (not a dict: iterating it yields nothing)
                    yield file, name, content.get_tensor(name)
        except OSError as error:  # safetensors says so of a file without rights, too
            raise ModelInvalid(f"{file}: cannot be read; check its rights and copy it again") from error
        except SafetensorError as error:
            raise ModelInvalid(f"{file}: not a whole safetensors file ({error}); copy it again") from error
