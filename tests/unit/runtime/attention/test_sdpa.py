"""Paged attention against attention written out, over scattered pages."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.base.shapes import KvScale, ModelShape
from graphpod_runtime.cache.kv import KvCache
from tests.attention_inputs import attention_inputs

FP8 = torch.float8_e4m3fn
SCALES = (KvScale(), KvScale(0.5, 0.03))


def shape(heads: int, kv_heads: int, window: int | None = None, scale: float | None = None) -> ModelShape:
    plain = ModelShape("toy", 2, heads * 8, 8, heads, kv_heads, 8, 16, 64, 1e-5, 1e4, True, ())
    return replace(plain, windows=(None, window), attention_scale=scale)


def written_out(q: Tensor, k: Tensor, v: Tensor, window: int | None, scale: float) -> Tensor:
    """The last rows of a causal attention over k and v [context, kv_heads, d], in float64."""
    rows, context, groups = q.shape[0], k.shape[0], q.shape[1] // k.shape[1]
    keys, values = (half.double().repeat_interleave(groups, 1).transpose(0, 1) for half in (k, v))
    scores = q.double().transpose(0, 1) @ keys.transpose(1, 2) * scale
    distance = torch.arange(context - rows, context)[:, None] - torch.arange(context)
    hidden = (distance < 0) | (distance >= (window or context))
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return (weights @ values).transpose(0, 1).flatten(1)


class Scene:
    """Sequences of given contexts, of which the last `rows` tokens run in this pass; pages are shuffled."""

    def __init__(
        self,
        shape: ModelShape,
        contexts: list[int],
        rows: list[int],
        dtype: torch.dtype,
        *,
        page: int = 4,
        cache_dtype: torch.dtype | None = None,
    ) -> None:
        generator = torch.Generator().manual_seed(5)
        counts = [-(-context // page) for context in contexts]
        order = (torch.randperm(sum(counts), generator=generator) + 1).tolist()
        width = max(counts)
        self.shape = shape
        self.tables = [[order.pop() for _ in range(count)] for count in counts]
        self.cache = KvCache.allocate(shape, sum(counts) + 1, page, cache_dtype or dtype, scales=SCALES)
        self.cache.fill(torch.arange(sum(counts) + 1), 1e4)
        self.k, self.v = (
            [torch.randn(context, shape.kv_heads, 8, generator=generator).to(dtype) for context in contexts]
            for _ in range(2)
        )
        self.q = [torch.randn(count, shape.heads, 8, generator=generator).to(dtype) for count in rows]
        places = [
            torch.tensor([table[at // page] * page + at % page for at in range(context)])
            for table, context in zip(self.tables, contexts, strict=True)
        ]
        if any(context > count for context, count in zip(contexts, rows, strict=True)):
            pasts = [slice(0, context - count) for context, count in zip(contexts, rows, strict=True)]
            self._run(
                slots=torch.cat([place[past] for place, past in zip(places, pasts, strict=True)]),
                k=torch.cat([one[past] for one, past in zip(self.k, pasts, strict=True)]),
                v=torch.cat([one[past] for one, past in zip(self.v, pasts, strict=True)]),
            )
        self.rows = rows
        self.inputs = attention_inputs(
            slots=torch.cat([place[-count:] for place, count in zip(places, rows, strict=True)]),
            tables=torch.tensor([table + [0] * (width - len(table)) for table in self.tables]),
            lengths=torch.tensor(contexts),
            starts=torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()]),
        )

    def _run(self, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Writes a past, whatever it attends to."""
        count = slots.shape[0]
        attention = TorchAttention(self.shape)
        attention.bind(self.cache)
        pages = torch.zeros(1, -(-count // self.cache.page_size), dtype=torch.int64)
        attention.plan(attention_inputs(slots, pages, torch.tensor([count]), torch.tensor([0, count])))
        attention.run(1, k.new_zeros(count, self.shape.heads, 8), k, v)

    def run(self) -> Tensor:
        attention = TorchAttention(self.shape)
        attention.bind(self.cache)
        attention.plan(self.inputs)
        k, v = (torch.cat([one[-n:] for one, n in zip(all_, self.rows, strict=True)]) for all_ in (self.k, self.v))
        return attention.run(1, torch.cat(self.q), k, v)

    def expected(self) -> Tensor:
        return torch.cat(
            [
                written_out(q, self._held(k, "key"), self._held(v, "value"), self.shape.window(1), self.scale)
                for q, k, v in zip(self.q, self.k, self.v, strict=True)
            ]
        )

    @property
    def scale(self) -> float:
        return self.shape.attention_scale or 8**-0.5

    def _held(self, x: Tensor, half: str) -> Tensor:
        """`x` as the cache can hold it."""
        if self.cache.keys.dtype is not FP8:
            return x
        scale = getattr(SCALES[1], half)
        return (x.float() / scale).clamp(-448, 448).to(FP8).float() * scale


CASES = {
    "one sequence from its start": ([7], [7]),
    "one sequence with a past": ([11], [3]),
    "several, with and without a past": ([5, 9, 4, 13], [5, 2, 4, 1]),
    "long ones": ([40, 61], [33, 20]),
    "one decode row": ([10], [1]),
    "decode rows of different lengths": ([1, 17, 8, 3, 60], [1, 1, 1, 1, 1]),
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (4, 4), (4, 1)])
@pytest.mark.parametrize("case", CASES)
def test_paged_attention_equals_attention_written_out(
    case: str, heads: int, kv_heads: int, dtype: torch.dtype, tolerance: float
) -> None:
    scene = Scene(shape(heads, kv_heads), *CASES[case], dtype)
    got = scene.run()
    assert got.shape == (sum(CASES[case][1]), heads * 8)
    assert torch.allclose(got.double(), scene.expected(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("cache_dtype", [torch.float32, FP8])
@pytest.mark.parametrize("window", [1, 4, 7, 24, 100])
@pytest.mark.parametrize("page", [1, 4, 16, 64])
@pytest.mark.parametrize("case", CASES)
def test_a_window_and_a_scale_of_its_own_hold_at_any_page_size(
    case: str, page: int, window: int, cache_dtype: torch.dtype
) -> None:
    scene = Scene(shape(4, 2, window, scale=0.7), *CASES[case], torch.float32, page=page, cache_dtype=cache_dtype)
    assert torch.allclose(scene.run().double(), scene.expected(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_an_fp8_cache_gives_attention_over_what_it_can_hold(case: str) -> None:
    scene = Scene(shape(4, 2), *CASES[case], torch.float32, cache_dtype=FP8)
    got = scene.run()
    assert got.dtype is torch.float32
    assert torch.allclose(got.double(), scene.expected(), atol=1e-5, rtol=1e-5)
    exact = Scene(shape(4, 2), *CASES[case], torch.float32).expected()
    assert 1e-4 < (got - exact).abs().max() < 0.3, "eight bits, and no fewer"


def test_keys_and_values_land_in_their_slots_of_their_layer_only() -> None:
    scene = Scene(shape(4, 2), [9], [4], torch.float32)
    before = scene.cache.keys.clone()
    scene.run()
    assert torch.equal(scene.cache.keys[0], before[0])
    changed = (scene.cache.keys[1] != before[1]).flatten(2).any(-1).flatten().nonzero().flatten().tolist()
    assert changed == sorted(scene.inputs.slots.tolist())
    assert torch.equal(scene.cache.values[1].flatten(0, 1)[scene.inputs.slots], scene.v[0][-4:])
