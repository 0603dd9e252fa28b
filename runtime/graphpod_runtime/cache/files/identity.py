"""What the bytes of a page depend on besides its tokens: in one hash, the first part of each key.

Weights are known by what they are, not by where they came from: other weights under the same name give other keys, the
same weights in another folder the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256

import torch
from torch import Tensor

WORDS_AT_ONCE = 1 << 20
"""Memory of 12 MiB."""


def identity(words: Mapping[str, object], tensors: Iterable[tuple[str, Tensor]]) -> bytes:
    """Of `words` by their names, and of all `tensors` by theirs. The device is waited for."""
    state = sha256(repr(sorted((name, str(word)) for name, word in words.items())).encode())
    for name, tensor in sorted(tensors, key=lambda entry: entry[0]):
        state.update(repr((name, tuple(tensor.shape), tensor.dtype)).encode())
        state.update(_sums(tensor.detach()).numpy().tobytes())
    return state.digest()


def _sums(tensor: Tensor) -> Tensor:
    """Of all words of `tensor`, and of each by its place, part by part."""
    sums = list[Tensor]()
    for words in _parts(tensor):
        wide = words.to(torch.int64)
        places = torch.arange(1, len(wide) + 1, device=wide.device)
        sums += [wide.sum(), (wide * places).sum()]
    return torch.stack(sums).cpu() if sums else torch.empty(0, dtype=torch.int64)


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """The bytes of `tensor` as words, in the order of its memory; nothing of it is copied whole."""
    by_stride = tensor.permute(sorted(range(tensor.dim()), key=lambda one: -tensor.stride(one)))
    if not by_stride.is_contiguous():
        for row in by_stride:
            yield from _parts(row.contiguous() if row.dim() <= 1 else row)
        return
    flat = by_stride.reshape(-1).view(torch.uint8)
    yield from (flat.view(torch.int32) if len(flat) % 4 == 0 else flat).split(WORDS_AT_ONCE)
