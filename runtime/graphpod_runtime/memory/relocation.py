"""A module's weights into a span: what holds a tensor of it goes on holding the same one."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.memory.span import Span, aligned

RETURNED_BYTES = 1 << 30
"""Of places that tensors have left: when there are so many, torch gives its device's memory back."""


def bytes_of(module: nn.Module) -> int:
    """What the parameters and buffers of `module` take in a span; memory that several share counts once."""
    return sum(aligned(storage.nbytes()) for storage in _storages(module))


def relocate(module: nn.Module, span: Span, read: OnProgress = ignore_progress) -> None:
    """Every parameter and buffer of `module` lies in `span` from now on, each with the neighbours that it shared its
    memory with. They are the same objects with the same values; `read` is called after each. `span` grows as it is
    filled, and the places that tensors leave are returned meanwhile, so that both never hold all of them.
    """
    members: dict[int, list[Tensor]] = {}
    for tensor in _members(module):
        members.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    first = left = 0
    for sharing in members.values():
        storage = sharing[0].untyped_storage()
        size, cuda = storage.nbytes(), storage.device.type == "cuda"
        if size == 0:
            continue
        span.grow(first + size)
        place = span.tensor(first, size)
        place.copy_(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage))
        for tensor in sharing:
            _put(tensor, place)
        first, left = first + aligned(size), left + size
        if cuda and left > RETURNED_BYTES:
            torch.cuda.empty_cache()
            left = 0
        read()


def _put(tensor: Tensor, place: Tensor) -> None:
    """`tensor` at its offset in `place`, which is a copy of its storage."""
    there = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    there.set_(place.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    tensor.data = there


def _members(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _storages(module: nn.Module) -> list[torch.UntypedStorage]:
    found = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in _members(module)}
    return [storage for storage in found.values() if storage.nbytes()]
