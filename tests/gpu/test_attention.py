"""flashinfer and our kernels on a GPU, against the same in plain torch."""

import pytest
import torch

from graphpod_runtime.attention.base import Metadata
from graphpod_runtime.attention.flashinfer import FlashInferAttention
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.kernels.rows import TorchRows, rows_for
from graphpod_runtime.models.base import ModelShape

CUDA = torch.device("cuda", 0)
SHAPE = ModelShape("toy", 2, 1024, 8, 8, 2, 128, 16, 32768, 1e-5, 1e4, True, ())
PAGE = 16


def prefill_of(rows: int, first_page: int) -> Metadata:
    """One sequence of `rows` tokens from its start, on pages of its own."""
    pages = torch.arange(first_page, first_page + -(-rows // PAGE))
    return Metadata(
        slots=(first_page * PAGE) + torch.arange(rows),
        tables=pages[None],
        lengths=torch.tensor([rows]),
        starts=torch.tensor([0, rows]),
    )


def heads(rows: int, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator(CUDA).manual_seed(seed)
    return torch.randn(rows, count, 128, generator=generator, device=CUDA, dtype=torch.bfloat16)


@pytest.mark.parametrize("backend", ["fa2", "fa3"])
def test_a_plan_made_while_the_device_is_behind_leaves_the_pass_before_it_alone(backend: str) -> None:
    """Plans are copied to the device in its own time; a large ladder's captures put it far behind the host."""
    cache = KvCache.allocate(SHAPE, 400, PAGE, torch.bfloat16, CUDA)
    attention = FlashInferAttention(SHAPE, torch.bfloat16, CUDA, prefill=backend)
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


@pytest.mark.parametrize("backend", ["fa2", "fa3"])
def test_prefill_and_decode_are_those_of_plain_torch(backend: str) -> None:
    results = []
    for attention in (FlashInferAttention(SHAPE, torch.bfloat16, CUDA, prefill=backend), TorchAttention(SHAPE)):
        attention.bind(KvCache.allocate(SHAPE, 100, PAGE, torch.bfloat16, CUDA))
        attention.plan(prefill_of(700, 3))
        prefill = attention.run(1, *(heads(700, count, count) for count in (8, 2, 2)))
        slots = torch.tensor([3 * PAGE + 700])
        attention.plan(
            Metadata(slots, torch.arange(3, 3 + 44)[None], lengths=torch.tensor([701]), starts=torch.tensor([0, 1]))
        )
        decode = attention.run(1, *(heads(1, count, 7 + count) for count in (8, 2, 2)))
        results.append((prefill, decode, attention.cache.keys, attention.cache.values))
    ours, plain = results
    for got, expected in zip(ours[:2], plain[:2], strict=True):
        assert (got - expected).abs().max() < 0.02
    for got, expected in zip(ours[2:], plain[2:], strict=True):
        assert torch.equal(got, expected)


def test_rows_are_copied_as_torch_copies_them_whatever_their_strides() -> None:
    qkv = heads(33, 12, 1)
    together = qkv.split((8, 2, 2), dim=1)
    apart = tuple(part.transpose(0, 1).contiguous().transpose(0, 1) for part in together)
    slots = torch.randperm(64, device=CUDA)[:33]
    for sources in (together, apart):
        results = []
        for kernels in (rows_for(CUDA), TorchRows()):
            targets = tuple(torch.zeros(33, count, 128, device=CUDA, dtype=torch.bfloat16) for count in (8, 2, 2))
            kernels.stage(sources, targets)
            layers = [torch.zeros(2, 64, 2, 128, device=CUDA, dtype=torch.bfloat16) for _ in range(3)]
            write = kernels.writer(*sources[1:], slots)
            for keys, values in layers:
                write(keys, values)
            results.append([*targets, *layers])
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
