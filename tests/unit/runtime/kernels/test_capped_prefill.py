"""Prefill whose scores are capped or have sinks goes some rows at a time: a chunk takes no more behind a long past."""

import pytest
import torch
from torch import Tensor

from graphpod_runtime.kernels import capped_attention as capped
from graphpod_runtime.kernels.paged_attention import paged_attention

HEADS, KV_HEADS, WIDTH, PAGE = 4, 2, 8, 4


def chunk(past: int, rows: int, window: int | None) -> Tensor:
    """The result of `rows` rows behind `past` tokens, over pages that lie in no order."""
    generator = torch.Generator().manual_seed(0)
    pages = -(-(past + rows) // PAGE)
    keys, values = (torch.randn(pages + 1, PAGE, KV_HEADS, WIDTH, generator=generator) for _ in range(2))
    tables = torch.randperm(pages, generator=generator)[None] + 1
    at = torch.arange(past, past + rows)
    q, k, v = (torch.randn(rows, heads, WIDTH, generator=generator) for heads in (HEADS, KV_HEADS, KV_HEADS))
    sinks, out = torch.randn(HEADS, generator=generator), torch.empty(rows, HEADS, WIDTH)
    paged_attention(
        q, k, v, keys, values, tables[0, at // PAGE] * PAGE + at % PAGE, tables, torch.tensor([past + rows]),
        torch.tensor([0, rows]), 0.3, window, 2.0, sinks, 1.0, 1.0, out,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize(("past", "rows"), [(0, 9), (13, 7), (30, 2)])
def test_blocks_of_rows_give_what_all_rows_at_once_give(
    past: int, rows: int, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = chunk(past, rows, window)
    for scores in (1, 4 * HEADS * (past + rows) * 3):
        monkeypatch.setattr(capped, "SCORE_BYTES", scores)
        torch.testing.assert_close(chunk(past, rows, window), whole)


def test_a_chunk_behind_a_long_past_takes_no_more_scores_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    attend = capped.capped_attention

    def watched(q: Tensor, k: Tensor, *others: object) -> Tensor:
        nonlocal largest
        largest = max(largest, 4 * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[-2])
        return attend(q, k, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(capped, "capped_attention", watched)
    monkeypatch.setattr(capped, "SCORE_BYTES", 1 << 16)
    chunk(2000, 64, None)
    assert 0 < largest <= 1 << 16
