"""Attention that a module writes out is read, and goes through ours; what is not known in it is refused by name."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.models.by_transformers.own_attention import OwnAttention
from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported, Lack

TOKENS, HEADS, WIDTH = 5, 3, 4
MASK = torch.ones(TOKENS, TOKENS).tril().log()[None, None]
WrittenOut = Callable[[Tensor, Tensor, Tensor], Tensor]


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, TOKENS, WIDTH, generator=generator) for _ in range(3))
    return q, k, v


def gptj(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q.float(), k.transpose(-1, -2)) / math.sqrt(WIDTH) + MASK
    return torch.matmul(functional.dropout(functional.softmax(scores, dim=-1).to(v.dtype), 0.0), v)


def bart(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads are the first dimension, and the query has the scale."""
    scores = torch.bmm(q[0] * WIDTH**-0.5, k[0].transpose(1, 2)).view(1, HEADS, TOKENS, TOKENS) + MASK
    return torch.bmm(torch.softmax(scores.view(HEADS, TOKENS, TOKENS), dim=-1), v[0])[None]


def falcon(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    scores *= WIDTH**-0.5
    scores += MASK
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("written", [gptj, bart, falcon])
def test_it_is_one_call_of_attention_with_its_scale_and_its_mask(written: WrittenOut) -> None:
    q, k, v = drawn()
    wanted, calls = written(q, k, v), []

    def attended(*given: object) -> Tensor:
        calls.append(given)
        queries, keys, values, mask, scale = given
        made = functional.scaled_dot_product_attention(queries, keys, values, mask, scale=scale)  # type: ignore[arg-type]
        return made.transpose(1, 2)

    with OwnAttention(attended):
        assert torch.allclose(written(q, k, v), wanted, atol=1e-6)
    ((_, _, _, mask, _),) = calls
    assert mask is MASK


def test_attention_is_in_the_type_of_values() -> None:
    """GPT-J's queries and keys are widened for their scores: attention over a cache of 16 bits takes them as before."""
    q, k, v = (each.bfloat16() for each in drawn())

    def attended(*given: object) -> Tensor:
        queries, keys, values, mask, scale = given
        assert isinstance(queries, Tensor)
        assert torch.equal(queries, q)
        assert queries.dtype == keys.dtype == values.dtype == torch.bfloat16  # type: ignore[attr-defined]
        made = functional.scaled_dot_product_attention(queries, keys, values, mask.bfloat16(), scale=scale)  # type: ignore[arg-type,attr-defined]
        return made.transpose(1, 2)

    wanted = gptj(q, k.float(), v)
    with OwnAttention(attended):
        found = gptj(q, k.float(), v)
    assert found.dtype == wanted.dtype == torch.bfloat16
    assert torch.allclose(found, wanted, atol=2e-2)


def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.softmax(q @ k.mT + MASK + MASK, dim=-1) @ v


def scaled_late(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.softmax((q @ k.mT + MASK) / 2, dim=-1) @ v


def chosen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores: Tensor = q @ k.mT
    return functional.softmax(torch.where(MASK < 0, torch.tensor(-1e9), scores), dim=-1) @ v


def by_a_tensor(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.softmax(q @ k.mT * q[..., :1], dim=-1) @ v


def weighed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (functional.softmax(q @ k.mT, dim=-1) * 2) @ v


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (biased, "calls add of its scores"),
        (scaled_late, "calls div behind its mask of its scores"),
        (chosen, "calls where of its scores"),
        (by_a_tensor, "calls mul of its scores"),
        (weighed, "calls mul of its scores"),
    ],
)
def test_what_is_not_known_in_it_is_refused_by_name(written: WrittenOut, words: str) -> None:
    def attended(*given: object) -> Tensor:
        raise AssertionError("it was taken for attention")

    with OwnAttention(attended), pytest.raises(FamilyUnsupported, match=words) as caught:
        written(*drawn())
    assert caught.value.lack is Lack.NoAttention


def test_other_products_are_as_they_were() -> None:
    x, weight = torch.randn(3, 7, 4), torch.randn(3, 4, 6)
    turns, places = torch.randn(1, 5, 1), torch.randn(1, 1, 5)
    wanted = x @ weight, torch.bmm(x, weight), turns @ places

    def attended(*given: object) -> Tensor:
        raise AssertionError("it was taken for attention")

    with OwnAttention(attended):
        found = x @ weight, torch.bmm(x, weight), turns @ places
    assert all(map(torch.equal, found, wanted))
