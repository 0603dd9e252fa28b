"""Pages brought together and put back."""

import pytest
import torch
from torch import Tensor

from graphpod_runtime.cache.page_packing import PagePacking, TorchPacking, packing_for

LAYERS, PAGES = 3, 9


def packs_rightly(packing: PagePacking, device: torch.device, word: torch.dtype, width: int, halves: int) -> None:
    """Every byte of the pages, at its place, and no other byte of cache or packed memory."""
    draw = torch.Generator().manual_seed(width)

    def drawn(*shape: int) -> Tensor:
        octets = torch.randint(0, 256, (*shape[:-1], shape[-1] * word.itemsize), generator=draw, dtype=torch.uint8)
        return octets.view(word).to(device)

    cache = tuple(drawn(LAYERS, PAGES, width) for _ in range(halves))
    numbers = [7, 0, 4, 8, 3]
    pages, memory = torch.tensor(numbers, device=device), drawn(len(numbers) + 2, LAYERS, halves, width)
    behind = memory[len(numbers) :].clone()
    packed = memory[: len(numbers)]
    packing.gather(cache, pages, packed)
    for place, page in enumerate(numbers):
        for number, half in enumerate(cache):
            assert torch.equal(packed[place, :, number], half[:, page])
    assert torch.equal(memory[len(numbers) :], behind)

    packed.copy_(drawn(len(numbers), LAYERS, halves, width))
    expected = tuple(half.clone() for half in cache)
    for number, half in enumerate(expected):
        for place, page in enumerate(numbers):
            half[:, page] = packed[place, :, number]
    packing.scatter(packed, pages, cache)
    assert all(torch.equal(*pair) for pair in zip(cache, expected, strict=True))


@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize(("word", "width"), [(torch.int64, 96), (torch.int32, 5), (torch.uint8, 1)])
def test_pages_are_brought_together_and_put_back(word: torch.dtype, width: int, halves: int) -> None:
    packs_rightly(TorchPacking(), torch.device("cpu"), word, width, halves)


def test_a_cpu_needs_no_triton() -> None:
    assert isinstance(packing_for(torch.device("cpu")), TorchPacking)
