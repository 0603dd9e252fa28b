"""flashinfer and our kernels on a GPU, against the same in plain torch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_policy import AttentionBackend
from graphpod_runtime.attention.choice import AttentionUnavailable, Work, attention_for
from graphpod_runtime.attention.flashinfer import FlashInferAttention
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import KvScale, ModelShape
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.kernels.matrix_product import add_product, product
from graphpod_runtime.kernels.rows.row_copies import TorchRows, rows_for
from tests.attention_inputs import attention_inputs

CUDA = torch.device("cuda", 0)
SHAPE = ModelShape("toy", 2, 1024, 8, 8, 2, 128, 16, 32768, 1e-5, 1e4, True, ())
PAGE = 16
FP8 = torch.float8_e4m3fn
SCALES = (KvScale(), KvScale(0.3, 0.11))
"""Of layers that keep them; others leave them aside."""


def prefill_of(rows: int, first_page: int) -> Inputs:
    """One sequence of `rows` tokens from its start, on pages of its own."""
    pages = torch.arange(first_page, first_page + -(-rows // PAGE))
    return attention_inputs(
        slots=(first_page * PAGE) + torch.arange(rows),
        tables=pages[None],
        lengths=torch.tensor([rows]),
        starts=torch.tensor([0, rows]),
    )


def step_of(tables: list[list[int]], contexts: list[int], rows: list[int], page: int) -> Inputs:
    """Sequences of `contexts` tokens, the last `rows` of which run in this pass."""
    width = max(map(len, tables))
    slots = [
        table[at // page] * page + at % page
        for table, context, count in zip(tables, contexts, rows, strict=True)
        for at in range(context - count, context)
    ]
    return attention_inputs(
        slots=torch.tensor(slots),
        tables=torch.tensor([table + [0] * (width - len(table)) for table in tables]),
        lengths=torch.tensor(contexts),
        starts=torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()]),
    )


def our_decode(shape: ModelShape, dtype: torch.dtype) -> Any:
    """Its kernels can be imported only where torch's build has triton, which its CPU build has not."""
    from graphpod_runtime.attention.paged_decode import PagedDecode

    return PagedDecode(shape, dtype, CUDA)


def heads(rows: int, count: int, seed: int, width: int = 128) -> torch.Tensor:
    generator = torch.Generator(CUDA).manual_seed(seed)
    return torch.randn(rows, count, width, generator=generator, device=CUDA, dtype=torch.bfloat16)


@pytest.mark.parametrize("backend", ["fa2", "fa3"])
def test_a_plan_made_while_the_device_is_behind_leaves_the_pass_before_it_alone(backend: str) -> None:
    """Plans are copied to the device in its own time; a large ladder's captures put it far behind the host."""
    cache = KvCache.allocate(SHAPE, 400, PAGE, torch.bfloat16, CUDA)
    attention = FlashInferAttention(
        SHAPE, torch.bfloat16, torch.bfloat16, CUDA, backend, our_decode(SHAPE, torch.bfloat16)
    )
    attention.bind(cache)
    sizes = (700, 4, 3000, 33, 1500)
    firsts = [1, 60, 70, 270, 280]
    inputs = [tuple(heads(rows, count, rows + count) for count in (8, 2, 2)) for rows in sizes]
    expected = []
    for rows, first, (q, k, v) in zip(sizes, firsts, inputs, strict=True):
        attention.plan(prefill_of(rows, first))
        expected.append(attention.run(0, q, k, v))
        torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    got = []
    for rows, first, (q, k, v) in zip(sizes, firsts, inputs, strict=True):
        attention.plan(prefill_of(rows, first))
        got.append(attention.run(0, q, k, v))
    torch.cuda.synchronize()
    assert all(torch.equal(*pair) for pair in zip(got, expected, strict=True))


KERNELS = {
    "fa2": ("fa2", 128, torch.bfloat16),
    "fa3": ("fa3", 128, torch.bfloat16),
    "fa2, narrow heads": ("fa2", 64, torch.bfloat16),
    "fa2 over FP8": ("fa2", 128, FP8),
    "fa2 over FP8, narrow heads": ("fa2", 64, FP8),
}
"""Every kernel there is: how it prefills, width of a head, type of the KV cache."""


@pytest.mark.parametrize("page", [1, 4, 16, 64])
@pytest.mark.parametrize("kernels", KERNELS)
def test_prefill_decode_and_cache_are_those_of_plain_torch(kernels: str, page: int) -> None:
    prefill, width, kv_dtype = KERNELS[kernels]
    shape = replace(SHAPE, head_dim=width, attention_scale=0.07)
    sizes = (700, 33, 1)
    results = []
    decode = our_decode(shape, torch.bfloat16)
    for attention in (
        FlashInferAttention(shape, torch.bfloat16, kv_dtype, CUDA, prefill, decode),
        TorchAttention(shape),
    ):
        cache = KvCache.allocate(shape, 1600 // page + 4, page, kv_dtype, CUDA, SCALES)
        attention.bind(cache)
        order = (torch.randperm(cache.pages - 1, generator=torch.Generator().manual_seed(3)) + 1).tolist()
        tables = [[order.pop() for _ in range(-(-(size + 40) // page))] for size in sizes]
        contexts = [0] * len(sizes)
        # From nothing, then with a past, then a token each.
        for rows in (sizes, (17, 20, 5), (1, 1, 1)):
            contexts = [context + count for context, count in zip(contexts, rows, strict=True)]
            attention.plan(step_of(tables, contexts, list(rows), page))
            count = sum(rows)
            results.append(attention.run(1, *(heads(count, n, count + n, width) for n in (8, 2, 2))))
        results += [cache.keys.view(torch.uint8), cache.values.view(torch.uint8)]
    ours, plain = results[:5], results[5:]
    for got, expected in zip(ours[:3], plain[:3], strict=True):
        assert (got - expected).abs().max() < 0.02 * expected.abs().max().clamp(min=1)
    for got, expected in zip(ours[3:], plain[3:], strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("window", [None, 300])
@pytest.mark.parametrize(
    ("heads_of", "width", "dtype", "kv_dtype", "queries"),
    [
        ((8, 2), 128, torch.bfloat16, torch.bfloat16, 1.0),
        ((16, 1), 64, torch.float16, torch.float16, 1.0),
        ((14, 2), 80, torch.bfloat16, torch.bfloat16, 1.0),
        ((4, 4), 256, torch.bfloat16, torch.bfloat16, 1.0),
        ((4, 2), 8, torch.float32, torch.float32, 1.0),
        ((4, 2), 128, torch.float32, torch.float32, 1.0),
        ((8, 2), 128, torch.bfloat16, FP8, 1.0),
        ((14, 2), 80, torch.bfloat16, FP8, 1.0),
        ((8, 2), 128, torch.bfloat16, FP8, 1e6),  # beyond float16
        ((4, 2), 128, torch.float32, FP8, 1.0),
    ],
)
@pytest.mark.parametrize("rows", [1, 4, 5, 9])
def test_decode_over_contexts_of_one_part_and_of_many_is_that_of_plain_torch(
    rows: int,
    heads_of: tuple[int, int],
    width: int,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    queries: float,
    window: int | None,
) -> None:
    """Three steps with other lengths: what the parts of a row leave for each other is used again."""
    count, kv_count = heads_of
    shape = replace(SHAPE, heads=count, kv_heads=kv_count, head_dim=width, windows=(window, window))
    if queries > 1:
        shape = replace(shape, attention_scale=0.07 / queries)
    contexts = [1, 5000, 2, 129, 256, 257, 128, 2049, 300][:rows]
    steps = (contexts, [context + 1 for context in contexts[::-1]], [context + 7 for context in contexts])
    results: list[list[Tensor]] = []
    for attention in (TorchAttention(shape, our_decode(shape, dtype)), TorchAttention(shape)):
        generator = torch.Generator(CUDA).manual_seed(rows)
        cache = KvCache.allocate(shape, 800, PAGE, kv_dtype, CUDA, SCALES)
        attention.bind(cache)
        attention.reserve(16, 400)
        cache.draw(torch.arange(800, device=CUDA), 3)  # what a start leaves on the scratch page is no difference
        order = (torch.randperm(799, generator=torch.Generator().manual_seed(3)) + 1).tolist()
        tables = [[order.pop() for _ in range(-(-(max(both) + 9) // PAGE))] for both in zip(*steps, strict=True)]
        found = []
        for lengths in steps:
            attention.plan(step_of(tables, lengths, [1] * rows, PAGE))
            q, k, v = (
                torch.randn(rows, n, width, generator=generator, device=CUDA).to(dtype)
                for n in (count, kv_count, kv_count)
            )
            found.append(attention.run(1, q * queries, k, v))
        results.append([*found, cache.keys, cache.values])
    for got, expected in zip(*results, strict=True):
        assert (got.float() - expected.float()).abs().max() < (1e-4 if dtype is torch.float32 else 0.02)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("inputs", "outputs"), [(1024, 2048), (3072, 1024), (1500, 333), (64, 4096)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_of_a_few_rows_are_those_of_torch(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> None:
    generator = torch.Generator(CUDA).manual_seed(inputs + rows)
    x, weight, bias, residual = (
        torch.randn(*size, generator=generator, device=CUDA).to(dtype)
        for size in ((rows, inputs), (outputs, inputs), (outputs,), (rows, outputs))
    )
    plain = functional.linear(x.double(), weight.double())
    near = {"rtol": 1e-2, "atol": 0.5} if dtype is not torch.float32 else {"rtol": 1e-4, "atol": 1e-3}
    torch.testing.assert_close(product(x, weight).double(), plain, **near)
    torch.testing.assert_close(product(x, weight, bias).double(), plain + bias.double(), **near)
    summed = plain + residual.double()
    assert add_product(residual, x, weight) is residual
    torch.testing.assert_close(residual.double(), summed, **near)


@pytest.mark.parametrize("kernels", [*KERNELS, "torch", "torch, our decode"])
def test_a_captured_step_is_planned_and_replayed_without_waiting_for_the_device(kernels: str) -> None:
    prefill, width, kv_dtype = KERNELS.get(kernels, ("", 128, torch.bfloat16))
    shape = replace(SHAPE, head_dim=width)
    decode = None if kernels == "torch" else our_decode(shape, torch.bfloat16)
    attention: AttentionBackend = TorchAttention(shape, decode)
    if prefill:
        attention = FlashInferAttention(shape, torch.bfloat16, kv_dtype, CUDA, prefill, decode)
    attention.bind(KvCache.allocate(shape, 100, PAGE, kv_dtype, CUDA, SCALES))
    attention.reserve(4, 30)
    inputs = [heads(4, n, n, width) for n in (8, 2, 2)]
    tables = [[1, 2, 3], [4, 5], [6]]
    step = step_of(tables, [40, 17, 16], [1, 1, 1], PAGE)
    attention.plan_step(step, 4)
    out = attention.run(0, *inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention.run(0, *inputs)
    later = step_of(tables, [41, 18, 5], [1, 1, 1], PAGE)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        attention.plan_step(later, 4)
        graph.replay()
        attention.plan_step(later, 4)
        graph.replay()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    attention.plan(later)
    expected = attention.run(0, *(one[:3] for one in inputs))
    assert (out[:3] - expected).abs().max() < 0.01
    assert out.isfinite().all()


def test_without_built_kernels_torch_attends_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from flashinfer.jit import env

    work = Work(SHAPE, torch.bfloat16, torch.bfloat16, CUDA)
    found = attention_for(work, AttentionBackend.Auto)
    assert found.backend.name == "flashinfer/fa3"
    assert attention_for(replace(work, kv_dtype=FP8), AttentionBackend.Auto).backend.name == "flashinfer/fa2"
    with pytest.raises(AttentionUnavailable, match="fa3 kernels require a KV cache in bfloat16"):
        attention_for(replace(work, kv_dtype=FP8), AttentionBackend.Fa3)
    windowed = replace(SHAPE, windows=(512, None))
    assert "attend to a window" in attention_for(replace(work, shape=windowed), AttentionBackend.Auto).because
    monkeypatch.setattr(env, "FLASHINFER_AOT_DIR", tmp_path)
    missing = attention_for(work, AttentionBackend.Auto)
    assert missing.backend.name == "torch"
    assert f"are not built (looked for in {tmp_path})" in missing.because
    with pytest.raises(AttentionUnavailable, match="FlashInfer cannot be served: flashinfer's fa2 kernels"):
        attention_for(work, AttentionBackend.FlashInfer)


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_rows_are_copied_as_torch_copies_them_whatever_their_strides(dtype: torch.dtype) -> None:
    qkv = heads(33, 12, 1)
    qkv[3, :, :4] = torch.tensor([1e4, -1e4, torch.inf, 1e-5], device=CUDA)
    together = qkv.split((8, 2, 2), dim=1)
    apart = tuple(part.transpose(0, 1).contiguous().transpose(0, 1) for part in together)
    slots = torch.randperm(64, device=CUDA)[:33]
    for sources in (together, apart):
        results = []
        for kernels in (rows_for(CUDA), TorchRows()):
            targets = tuple(torch.zeros(33, count, 128, device=CUDA, dtype=torch.bfloat16) for count in (8, 2, 2))
            kernels.stage(sources, targets)
            layers = [torch.zeros(2, 64, 2, 128, device=CUDA, dtype=dtype) for _ in range(3)]
            write = kernels.writer(*sources[1:], slots)
            for layer, (keys, values) in enumerate(layers):
                write(keys, values, KvScale(0.3, 1.7 + layer))
            results.append([*targets, *(layer.view(torch.uint8) for layer in layers)])
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_a_segment_writes_the_rows_that_have_a_slot_to_the_cache_that_the_table_names(dtype: torch.dtype) -> None:
    from graphpod_runtime.kernels.rows.row_copies_triton import stage_and_write

    sources = heads(33, 12, 1).split((8, 2, 2), dim=1)
    slots = torch.randperm(64, device=CUDA)[:33]
    slots[20:] = -1
    caches = [torch.zeros(2, 64, 2, 128, device=CUDA, dtype=dtype) for _ in range(3)]
    scale, bases = KvScale(0.3, 1.7), torch.zeros(2, 2, dtype=torch.int64, device=CUDA)
    graph = torch.cuda.CUDAGraph()
    places = tuple(torch.zeros(33, count, 128, device=CUDA, dtype=torch.bfloat16) for count in (8, 2, 2))
    with torch.cuda.graph(graph):
        stage_and_write(sources, places, bases[1], dtype, slots, scale)
    for keys, values in caches[1:]:
        # The cache of the replay is another than that of the capture.
        bases[1] = torch.tensor([keys.data_ptr(), values.data_ptr()])
        graph.replay()
        right = torch.zeros(2, 64, 2, 128, device=CUDA, dtype=dtype)
        TorchRows().writer(sources[1][:20], sources[2][:20], slots[:20])(*right, scale)
        assert torch.equal(torch.stack((keys, values)).view(torch.uint8), right.view(torch.uint8))
    assert not caches[0].view(torch.uint8).any()
    assert all(torch.equal(place, source) for place, source in zip(places, sources, strict=True))
