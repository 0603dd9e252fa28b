"""The recorder's pool hands out its lowest free memory; what is given back is one block with its neighbours."""

from itertools import permutations

import pytest
import torch
from torch import Tensor

from graphpod_runtime.base.errors import CaptureOutOfMemory
from graphpod_runtime.graphs.segments.arena import ALIGNMENT, Arena


def block(arena: Arena, units: int) -> Tensor:
    return arena.empty_like(torch.zeros(units * ALIGNMENT, dtype=torch.uint8))


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_blocks_given_back_in_any_order_are_one_block_again(order: tuple[int, ...]) -> None:
    arena = Arena(8 * ALIGNMENT)
    blocks: list[Tensor | None] = [block(arena, units) for units in (1, 2, 1)]
    kept = block(arena, 4)
    for index in order:
        blocks[index] = None
    whole = block(arena, 4)
    assert arena.high_water == 8 * ALIGNMENT
    whole.fill_(1)
    kept.fill_(2)
    assert whole.eq(1).all()
    with pytest.raises(CaptureOutOfMemory, match="no block of 64 bytes is free"):
        block(arena, 1)


def test_the_lowest_block_that_is_large_enough_is_taken() -> None:
    arena = Arena(8 * ALIGNMENT)
    small, between, large, end = (block(arena, units) for units in (1, 1, 3, 1))
    places = [tensor.data_ptr() for tensor in (small, large)]
    del small, large
    assert block(arena, 2).data_ptr() == places[1]
    assert block(arena, 1).data_ptr() == places[0]
    assert between.data_ptr() < end.data_ptr()
