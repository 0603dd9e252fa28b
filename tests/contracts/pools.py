"""What a test asks of a graph pool, whichever device it is on."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from graphpod_runtime.base import opaque_call
from graphpod_runtime.graphs.segments.cpu import RecorderPool
from graphpod_runtime.graphs.segments.cuda import CudaPool
from graphpod_runtime.graphs.segments.segment import Pool


def is_capturing() -> bool:
    """Whether what runs now is being captured."""
    on_gpu = torch.cuda.is_available() and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    return opaque_call._recording is not None or on_gpu


@contextmanager
def capturing(pool: Pool) -> Iterator[None]:
    """Where segments are captured, as an engine does it: a collector that frees another test's graph now would make
    the driver give up the capture.
    """
    gc.collect()
    gc.disable()
    try:
        with torch.no_grad(), pool.capturing():
            yield
    finally:
        gc.enable()


def owns(pool: Pool, tensor: Tensor) -> bool:
    """Whether `tensor` lies in `pool`."""
    if isinstance(pool, RecorderPool):
        return pool.arena.owns(tensor)
    at = tensor.untyped_storage().data_ptr()
    return any(part["address"] <= at < part["address"] + part["total_size"] for part in cuda_parts(pool))


def used_bytes(pool: Pool) -> int:
    """Bytes of `pool` that belong to a living tensor."""
    gc.collect()
    if isinstance(pool, RecorderPool):
        return sum(block.size for block in pool.arena.live.values())
    return sum(part["allocated_size"] for part in cuda_parts(pool))


def cuda_parts(pool: Pool) -> list[dict[str, object]]:
    """The allocator's own account of `pool`."""
    assert isinstance(pool, CudaPool)
    return [part for part in torch.cuda.memory_snapshot() if tuple(part["segment_pool_id"]) == tuple(pool.handle)]
