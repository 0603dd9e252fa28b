"""The KV cache takes memory where it is written, not where it is reserved."""

from pathlib import Path

import pytest
import torch

from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.cache import kv
from graphpod_runtime.cache.kv import KvCache, page_bytes

SHAPE = ModelShape("toy", 4, 64, 8, 4, 4, 64, 16, 64, 1e-5, 1e4, True, ())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_new_cache_is_zero_and_takes_no_memory(dtype: torch.dtype) -> None:
    pages = (256 << 20) // page_bytes(SHAPE, 16, dtype)
    before = resident_bytes()
    cache = KvCache.allocate(SHAPE, pages, 16, dtype)
    assert resident_bytes() - before < 16 << 20
    assert (cache.keys.dtype, cache.pages, cache.page_size) == (dtype, pages, 16)
    cache.fill(torch.tensor([3]), 2.0)
    assert cache.keys[:, :5].sum() == cache.values[:, :5].sum() == 2.0 * 4 * 16 * 4 * 64


def test_clearing_takes_every_value_back_to_zero() -> None:
    cache = KvCache.allocate(SHAPE, 3, 16, torch.float32)
    cache.fill(torch.arange(3), torch.nan)
    cache.clear()
    assert not cache.keys.any()
    assert not cache.values.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_pages_hold_what_was_drawn_until_any_of_it_changes(dtype: torch.dtype) -> None:
    cache = KvCache.allocate(SHAPE, 6, 16, dtype)
    pages = torch.tensor([1, 4, 5])
    cache.draw(pages, seed=7)
    drawn = cache.take(pages)
    assert cache.keys.view(torch.uint8)[:, [0, 2, 3]].any() == 0, "no other page was written"
    assert len(torch.unique(drawn[0].float())) > 100, "values differ from slot to slot and layer to layer"
    cache.draw(pages, seed=8)
    assert not cache.holds(pages, drawn)
    cache.draw(pages, seed=7)
    assert cache.holds(pages, drawn)
    for half in (cache.keys, cache.values):
        kept = half[3, 5, 15, 3, 63].clone()
        half[3, 5, 15, 3, 63] = 3.0
        assert not cache.holds(pages, drawn), "the last slot of the last layer counts"
        half[3, 5, 15, 3, 63] = kept
    assert cache.holds(pages, drawn)
    others = torch.tensor([2, 0, 3])
    assert cache.differs(pages, others)
    cache.copy(pages, others)
    assert not cache.differs(pages, others)
    assert cache.holds(others, drawn)
    assert cache.holds(pages, drawn)


@pytest.mark.parametrize("together", [1, 64 * 16 * 4 * 2, 1 << 20])
def test_pages_are_drawn_and_compared_by_as_many_layers_as_there_is_room_for(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv, "CELLS_TOGETHER", together)
    cache = KvCache.allocate(SHAPE, 4, 16, torch.float32)
    pages = torch.tensor([3, 1])
    cache.draw(pages, seed=7)
    drawn = cache.take(pages)
    assert len(torch.unique(drawn[0])) > 30_000, "no layer has the values of another"
    assert cache.holds(pages, drawn)
    for layer in range(4):
        cache.values[layer, 1, 15, 3, 63] += 1
        assert not cache.holds(pages, drawn)
        cache.values[layer, 1, 15, 3, 63] = drawn[1][layer, 1, 15, 3, 63]
    assert cache.holds(pages, drawn)
