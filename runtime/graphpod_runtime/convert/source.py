"""A GGUF file as values: metadata by key, tensors by name as float32 arrays.

Parsing and dequantising are left to the `gguf` package, which llama.cpp itself publishes: it knows every quantised
block layout, follows the format as it grows and needs only numpy at import. This module adds the refusals.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize

from graphpod_policy.facts import MOST_SIZE
from graphpod_policy.model.shown import shown
from graphpod_runtime.base.files.regular_file import open_regular
from graphpod_runtime.convert.problem import ConvertError

MAGIC = b"GGUF"
AGAIN = "fetch the file again, or take the model's safetensors folder"


class Source:
    """One open GGUF file (memory mapped). Raises ConvertError for another or a damaged file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_regular(path) as file:
                magic = file.read(len(MAGIC))
        except OSError as error:
            raise ConvertError(f"{path}: cannot be read: {error.strerror}; give the path of a .gguf file") from error
        if magic != MAGIC:
            raise ConvertError(
                f"{path}: not a GGUF file: it starts with {magic!r}, not {MAGIC!r}; "
                "a folder with config.json and *.safetensors needs no conversion"
            )
        try:
            reader = GGUFReader(path)
            self._metadata = {key: field.contents() for key, field in reader.fields.items()}
        # The reader walks raw bytes: a damaged file surfaces as whichever numpy or enum error it trips over first.
        except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
            raise ConvertError(
                f"{path}: damaged, cut short or of a newer GGUF version than this build reads ({error}); "
                "compare its size and sha256 with the publisher's and fetch it again"
            ) from error
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}

    def get(self, key: str, default: Any = None) -> Any:
        """Metadata under `key`, or `default`."""
        return self._metadata.get(key, default)

    def need(self, key: str) -> Any:
        """Metadata under `key`; ConvertError naming the key when it is absent."""
        if key not in self._metadata:
            raise ConvertError(f"{self.path}: metadata key {key!r} is missing; convert a complete GGUF file")
        return self._metadata[key]

    def count(self, key: str, default: int | None = None, most: int = MOST_SIZE) -> int:
        """A whole number from 1 to `most` under `key`, or `default`. ConvertError for anything else."""
        value = self.need(key) if default is None else self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise ConvertError(f"{self.path}: metadata key {key!r} is {shown(value)}, not from 1 to {most}; {AGAIN}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """A positive number under `key`, or `default`. ConvertError for anything else."""
        value = self.need(key) if default is None else self.get(key, default)
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ConvertError(f"{self.path}: metadata key {key!r} is {shown(value)}, no positive number; {AGAIN}")
        return value

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Row-major shape (GGUF lists the fastest dimension first)."""
        return tuple(int(size) for size in reversed(self._tensor(name).shape))

    def tensor(self, name: str) -> np.ndarray:
        """The tensor dequantised to float32, in its row-major shape."""
        tensor = self._tensor(name)
        try:
            return dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(self.shape(name))
        except NotImplementedError as error:
            raise ConvertError(
                f"{self.path}: tensor {name} has type {tensor.tensor_type.name}, which cannot be dequantised; "
                "use a file of a common type such as F16, Q8_0, Q4_1 or Q4_K"
            ) from error

    def _tensor(self, name: str) -> ReaderTensor:
        if name not in self._tensors:
            raise ConvertError(f"{self.path}: tensor {name!r} is missing; convert a complete GGUF file")
        return self._tensors[name]
