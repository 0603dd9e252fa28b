"""Tensors of a folder of safetensors files, whose author may write anything into their headers."""

from collections.abc import Callable, Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.models.checkpoint_files import files_of
from graphpod_runtime.streaming.headers import LONGEST_NAME, MOST_DIMENSIONS

WORDS = 300
"""Characters of a library's own words in a message: it repeats what it has read."""


Keep = Callable[[str], bool]
"""Whether a tensor of that name is wanted. A file may name hundreds of thousands, and each takes its time to map."""


def every(_name: str) -> bool:
    """Keeps all tensors."""
    return True


def tensors(folder: Path, keep: Keep = every) -> Iterator[tuple[Path, str, Tensor]]:
    """Every (file, name, tensor) of the folder's safetensors files that is wanted; each tensor is mapped, not read,
    until used.
    """
    for file in files_of(folder):
        try:
            with safe_open(file, framework="pt") as content:
                for name in filter(keep, content.keys()):
                    yield file, name, _tensor(content, file, name)
        except OSError as error:  # safetensors says so of a file without rights, too
            raise ModelInvalid(f"{file}: cannot be read; check its rights and copy it again") from error
        except SafetensorError as error:
            raise ModelInvalid(
                f"{file}: not a whole safetensors file ({_first_words(error)}); copy it again"
            ) from error


def _tensor(content: safe_open, file: Path, name: str) -> Tensor:
    """The tensor of that name. ModelInvalid for one that no model has: its name and shape stand in messages."""
    if len(name) > LONGEST_NAME:
        what = f"a tensor's name has {len(name)} characters, more than {LONGEST_NAME}"
        raise ModelInvalid(f"{file}: {what}; copy it again")
    dimensions = len(content.get_slice(name).get_shape())
    if dimensions > MOST_DIMENSIONS:
        raise ModelInvalid(f"{file}: {name} has {dimensions} dimensions, more than {MOST_DIMENSIONS}; copy it again")
    try:
        return content.get_tensor(name)
    except (RuntimeError, TypeError, ValueError) as error:  # torch's, of a size or a type that it does not have
        raise ModelInvalid(f"{file}: {name} cannot be read ({_first_words(error)}); copy it again") from error


def _first_words(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:WORDS]
