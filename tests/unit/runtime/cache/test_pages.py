"""The page allocator never hands a page out twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.cache.pages import SCRATCH_PAGE, OutOfPages, PageAllocator


@given(st.integers(2, 20), st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=60))
def test_against_a_set(pages: int, steps: list[tuple[bool, int]]) -> None:
    allocator = PageAllocator(pages)
    held: list[list[int]] = []
    for take, number in steps:
        taken = [page for group in held for page in group]
        if take:
            if number > allocator.available:
                with pytest.raises(OutOfPages, match=f"{number} KV pages wanted"):
                    allocator.take(number)
                continue
            group = allocator.take(number)
            assert len(set(group)) == number
            assert not set(group) & {SCRATCH_PAGE, *taken}
            held.append(group)
        elif held:
            allocator.free(held.pop(number % len(held)))
        assert allocator.available + sum(map(len, held)) == allocator.capacity == pages - 1


def test_a_double_free_is_an_error() -> None:
    allocator = PageAllocator(4)
    pages = allocator.take(2)
    allocator.free(pages)
    with pytest.raises(ValueError, match="is not taken"):
        allocator.free(pages[:1])
    with pytest.raises(ValueError, match="page 0"):
        allocator.free([SCRATCH_PAGE])
