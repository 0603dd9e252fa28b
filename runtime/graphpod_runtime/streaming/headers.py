"""The header of a safetensors file, by ranges: where its tensors are. Bounded, since its source wrote it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphpod_sources.listing import RemoteFile, Source
from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason

LENGTH = 8
"""Bytes at the start that say how long the header is."""
LARGEST = 100_000_000
"""Bytes of a header; source: safetensors' own bound."""
FIRST = 256 << 10
"""Bytes of the first request: most headers are shorter."""
MOST_TENSORS = 1 << 20
"""Of all files together; the largest published models have some hundred thousand."""
LONGEST_NAME = 512
MOST_DIMENSIONS = 16
BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
"""Of one element, by the format's names of types."""


@dataclass(frozen=True, slots=True)
class RemoteTensor:
    """One tensor of a file: bytes `start` to before `end` of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @classmethod
    def of(cls, name: str, dtype: str, shape: Sequence[int], start: int, end: int) -> "RemoteTensor":
        """From what `document` gives."""
        return cls(name, dtype, tuple(shape), start, end)

    def document(self) -> list[Any]:
        """As a list for JSON."""
        return [self.name, self.dtype, list(self.shape), self.start, self.end]


def header(source: Source, file: RemoteFile) -> tuple[RemoteTensor, ...]:
    """The tensors of `file`, in the order of their bytes. Raises `Problem` (NoWeights) for a file that is no whole
    safetensors.
    """
    whole = file.size or 0
    if whole < LENGTH:
        raise _broken(file, f"it has {whole} bytes")
    content = _read(source, file, 0, min(FIRST, whole))
    length = int.from_bytes(content[:LENGTH], "little")
    if length > LARGEST or LENGTH + length > whole:
        raise _broken(file, "its header is longer than the file")
    begins = LENGTH + length
    if begins > len(content):
        content += _read(source, file, len(content), begins)
    try:
        entries = json.loads(content[LENGTH:begins])
        if len(entries) > MOST_TENSORS:
            raise ValueError(f"{len(entries)} entries, and a model can have {MOST_TENSORS} tensors")
        found = [_tensor(name, entry, begins, whole) for name, entry in entries.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _broken(file, f"its header is no map of tensors ({type(error).__name__}: {error})") from error
    return tuple(sorted(found, key=lambda one: (one.start, one.end, one.name)))


def _tensor(name: str, entry: Any, begins: int, whole: int) -> RemoteTensor:
    """One entry; ValueError for one that does not fit together."""
    if len(name) > LONGEST_NAME:
        raise ValueError(f"{shown(name)} is longer than {LONGEST_NAME} characters")
    dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in BYTES:
        raise ValueError(f"{shown(name)} has the unknown type {shown(str(dtype))}")
    numbers = [*shape, first, last]
    if len(shape) > MOST_DIMENSIONS or not all(type(one) is int and 0 <= one < 1 << 50 for one in numbers):
        raise ValueError(f"{shown(name)} has no usable shape")
    if last - first != prod(shape) * BYTES[dtype] or begins + last > whole:
        raise ValueError(f"{shown(name)} is not where the header says")
    return RemoteTensor(name, dtype, tuple(shape), begins + first, begins + last)


def _read(source: Source, file: RemoteFile, start: int, end: int) -> bytes:
    content = b"".join(bytes(chunk) for chunk in source.read(file, start, end))
    if len(content) != end - start:
        raise Problem(Reason.Truncated, f"{shown(file.path)}: ended at byte {start + len(content)} of {end}")
    return content


def _broken(file: RemoteFile, what: str) -> Problem:
    return Problem(
        Reason.NoWeights,
        f"{shown(file.path)}: not a whole safetensors file: {what}",
        next_step="upload the file again",
    )
