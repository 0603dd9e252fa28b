"""Paged attention against attention written out, over scattered pages."""

import pytest
import torch
from torch import Tensor

from graphpod_runtime.attention.base import Metadata
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.models.base import ModelShape

PAGE = 4


def shape(heads: int, kv_heads: int) -> ModelShape:
    return ModelShape("toy", 2, heads * 8, 8, heads, kv_heads, 8, 16, 64, 1e-5, 1e4, True, ())


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The last rows of a causal attention over k and v [context, kv_heads, d], in float64."""
    rows, context, groups = q.shape[0], k.shape[0], q.shape[1] // k.shape[1]
    keys, values = (half.double().repeat_interleave(groups, 1).transpose(0, 1) for half in (k, v))
    scores = q.double().transpose(0, 1) @ keys.transpose(1, 2) / q.shape[2] ** 0.5
    future = torch.arange(context) > torch.arange(context - rows, context)[:, None]
    weights = scores.masked_fill(future, -torch.inf).softmax(-1)
    return (weights @ values).transpose(0, 1).flatten(1)


class Scene:
    """Sequences of given contexts, of which the last `rows` tokens run in this pass; pages are shuffled."""

    def __init__(self, heads: int, kv_heads: int, contexts: list[int], rows: list[int], dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(5)
        counts = [-(-context // PAGE) for context in contexts]
        order = (torch.randperm(sum(counts), generator=generator) + 1).tolist()
        width = max(counts)
        self.tables = [[order.pop() for _ in range(count)] for count in counts]
        self.cache = KvCache.allocate(shape(heads, kv_heads), sum(counts) + 1, PAGE, dtype)
        self.cache.fill(torch.arange(sum(counts) + 1), 1e4)
        self.k, self.v = (
            [torch.randn(context, kv_heads, 8, generator=generator).to(dtype) for context in contexts] for _ in range(2)
        )
        self.q = [torch.randn(count, heads, 8, generator=generator).to(dtype) for count in rows]
        slots: list[int] = []
        for index, (context, count) in enumerate(zip(contexts, rows, strict=True)):
            places = [self.tables[index][at // PAGE] * PAGE + at % PAGE for at in range(context)]
            for half, values in ((self.cache.keys, self.k), (self.cache.values, self.v)):
                half[1].flatten(0, 1)[places[: context - count]] = values[index][: context - count]
            slots += places[context - count :]
        self.rows = rows
        self.metadata = Metadata(
            slots=torch.tensor(slots),
            tables=torch.tensor([table + [0] * (width - len(table)) for table in self.tables]),
            lengths=torch.tensor(contexts),
            starts=torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()]),
        )

    def run(self) -> Tensor:
        attention = TorchAttention()
        attention.bind(self.cache)
        attention.plan(self.metadata)
        k, v = (torch.cat([one[-n:] for one, n in zip(all_, self.rows, strict=True)]) for all_ in (self.k, self.v))
        return attention.run(1, torch.cat(self.q), k, v)

    def expected(self) -> Tensor:
        return torch.cat([written_out(*one) for one in zip(self.q, self.k, self.v, strict=True)])


CASES = {
    "one sequence from its start": ([7], [7]),
    "one sequence with a past": ([11], [3]),
    "several, with and without a past": ([5, 9, 4, 13], [5, 2, 4, 1]),
    "one decode row": ([10], [1]),
    "decode rows of different lengths": ([1, 17, 8, 3], [1, 1, 1, 1]),
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (4, 4), (4, 1)])
@pytest.mark.parametrize("case", CASES)
def test_paged_attention_equals_attention_written_out(
    case: str, heads: int, kv_heads: int, dtype: torch.dtype, tolerance: float
) -> None:
    scene = Scene(heads, kv_heads, *CASES[case], dtype)
    got = scene.run()
    assert got.shape == (sum(CASES[case][1]), heads * 8)
    assert torch.allclose(got.double(), scene.expected(), atol=tolerance, rtol=tolerance)


def test_keys_and_values_land_in_their_slots_of_their_layer_only() -> None:
    scene = Scene(4, 2, [9], [4], torch.float32)
    before = scene.cache.keys.clone()
    scene.run()
    assert torch.equal(scene.cache.keys[0], before[0])
    changed = (scene.cache.keys[1] != before[1]).flatten(2).any(-1).flatten().nonzero().flatten().tolist()
    assert changed == sorted(scene.metadata.slots.tolist())
    assert torch.equal(scene.cache.values[1].flatten(0, 1)[scene.metadata.slots], scene.v[0][-4:])
