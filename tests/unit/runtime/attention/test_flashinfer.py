"""What flashinfer's kernels are called with: page lists of a pass, and the arguments of a layer in their places."""

from typing import Any

import pytest
import torch

from graphpod_runtime.attention.flashinfer_prefill import PageLists, PrefillCall
from graphpod_runtime.base.shapes import HOST
from tests.attention_inputs import attention_inputs


def lists() -> PageLists:
    inputs = attention_inputs(
        slots=torch.zeros(6, dtype=torch.int64),
        tables=torch.tensor([[3, 4], [5, 6], [7, 0]]),
        lengths=torch.tensor([17, 5, 16]),
        starts=torch.tensor([0, 3, 4, 6]),
    )
    return PageLists.of(inputs, 16)


def test_pages_are_listed_as_far_as_a_sequence_has_tokens() -> None:
    assert lists().starts.tolist() == [0, 3, 4, 6]
    assert lists().indptr.tolist() == [0, 2, 3, 4]
    assert lists().indices.tolist() == [3, 4, 5, 7]
    assert lists().last.tolist() == [1, 5, 16]
    assert lists().lengths.tolist() == [17, 5, 16]


def test_the_device_gets_them_in_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[torch.Tensor] = []
    right = torch.Tensor.to

    def to(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        copies.append(tensor)
        return right(tensor, *arguments, **options)

    monkeypatch.setattr(torch.Tensor, "to", to)
    starts, indptr, indices, last = lists().on(HOST)
    assert len(copies) == 1
    assert all(part.dtype is torch.int32 for part in (starts, indptr, indices, last))
    assert starts.tolist() == [0, 3, 4, 6]
    assert indptr.tolist() == [0, 2, 3, 4]
    assert indices.tolist() == [3, 4, 5, 7]
    assert last.tolist() == [1, 5, 16]


def test_the_call_of_a_layer_has_its_own_cache_and_scale_between_the_arguments_of_the_pass() -> None:
    calls: list[tuple[Any, ...]] = []
    call = PrefillCall(lambda *arguments: calls.append(arguments), ("work", "q"), ("lists", "out", None), (1.0, 0))
    first, second = torch.zeros(1), torch.ones(1)
    call(first, second, 0.5)
    call(second, first, 0.25)
    assert calls == [
        ("work", "q", first, second, "lists", "out", None, 0.5, 1.0, 0),
        ("work", "q", second, first, "lists", "out", None, 0.25, 1.0, 0),
    ]
