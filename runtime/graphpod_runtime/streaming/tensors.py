"""Tensors of a streamed folder, each read as far as it is wanted, on the host: pinned where a GPU takes them."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.memory.pinned_cache import release_pinned
from graphpod_runtime.streaming.blocks import Wanted, blocks
from graphpod_runtime.streaming.folder import STALL_SECONDS, source_failed, streamed
from graphpod_runtime.streaming.reader import Reader
from graphpod_sources.names import size
from graphpod_sources.problem import Problem

log = logging.getLogger("graphpod.engine")

TYPES = {
    "F64": torch.float64, "I64": torch.int64, "U64": torch.uint64, "F32": torch.float32, "I32": torch.int32,
    "U32": torch.uint32, "F16": torch.float16, "BF16": torch.bfloat16, "I16": torch.int16, "U16": torch.uint16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
    "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
"""By the names of safetensors."""
KEPT = 1 << 30
"""Bytes of pinned buffers after which those that are free go back to the system."""
Allocate = Callable[[int], Tensor]


def outlines(folder: Path, keep: Callable[[str], bool]) -> Iterator[tuple[Path, str, Tensor]]:
    """Every (file, name, tensor) of a streamed folder whose name is wanted, without a byte of them: tensors of the meta
    device.
    """
    for file in streamed(folder).files:
        for one in file.tensors:
            if keep(one.name):
                yield folder / file.remote.path, one.name, torch.empty(one.shape, dtype=TYPES[one.dtype], device="meta")


def streamed_tensors(
    folder: Path,
    wanted: Wanted,
    device: torch.device,
    read: OnProgress = ignore_progress,
    allocate: Allocate | None = None,
) -> Iterator[tuple[Path, str, Tensor]]:
    """Every (file, name, tensor) that is `wanted`, of which the bytes that are not wanted may be anything. A tensor is
    valid until the next one is asked for. `read` is called while bytes come. SourceFailed says why none do.
    """
    there = streamed(folder)
    planned = blocks(there.files, wanted)
    make = allocate or (Pinned(_pinned, release_pinned) if device.type == "cuda" else _plain)
    try:
        reader = Reader(there.source(), planned, make, lambda buffer: memoryview(buffer.numpy()), STALL_SECONDS, read)
        count = sum(end - start for block in planned for start, end in block.pieces)
        log.info("weights: %s of %s by ranges", size(count), there.uri)
        for block, buffer in reader:
            for one in block.tensors:
                piece = buffer[one.start - block.start : one.end - block.start]
                dtype = TYPES[one.dtype]
                if piece.storage_offset() % dtype.itemsize:
                    piece = piece.clone()  # a view must begin at a multiple of its element
                yield folder / block.file.remote.path, one.name, piece.view(dtype).view(one.shape)
        log.info("weights: %s", reader.rates)
    except Problem as problem:
        raise source_failed(problem) from problem
    finally:
        if device.type == "cuda":
            release_pinned()


def _pinned(count: int) -> Tensor:
    """The device copies from it without a copy by the driver."""
    return torch.empty(count, dtype=torch.uint8, pin_memory=True)


class Pinned:
    """Pinned buffers. Torch rounds each up to a power of two, and lends what is free again for the same power only: so
    all that is free goes back to the system after `KEPT` bytes of buffers, or every power would keep its own.
    """

    def __init__(self, make: Allocate, empty: Callable[[], None]) -> None:
        self._make, self._empty, self._lent = make, empty, 0

    def __call__(self, count: int) -> Tensor:
        """A buffer of `count` bytes."""
        rounded = 1 << (count - 1).bit_length()
        self._lent += rounded
        if self._lent > KEPT:
            self._empty()
            self._lent = rounded
        return self._make(count)


def _plain(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.uint8)
