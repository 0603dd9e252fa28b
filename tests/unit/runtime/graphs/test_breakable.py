"""Breaks: what they see, what they may return, and what happens when they raise."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphpod_runtime.graphs.addresses import Addresses
from graphpod_runtime.graphs.breakable import (
    Break,
    BreakableGraph,
    BreakArena,
    Site,
    capture_breakable,
    narrowed,
    place,
)
from graphpod_runtime.graphs.errors import CaptureFailed, ReplayFailed
from graphpod_runtime.graphs.segment import RecorderPool
from graphpod_runtime.models.base import Attend, ModelShape
from tests.unit.runtime.graphs.pooled_breaks import PooledBreaks

SHAPE = ModelShape(
    architecture="toy",
    layers=3,
    hidden=8,
    intermediate=8,
    heads=2,
    kv_heads=1,
    head_dim=4,
    vocab=16,
    max_position=64,
    norm_eps=1e-5,
    rope_theta=10000.0,
    tied=True,
    eos_ids=(),
)


def attention(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
    """Rows see each other, so a padded or a stale row changes the others. Its result is a tensor of its own."""
    return torch.softmax(q.flatten(1).sum(1, keepdim=True) * k.flatten(1).sum(1), 1) @ v.flatten(1).repeat(1, 2) + layer


def attention_in_place(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
    """The same, where it may go."""
    return out.copy_(attention(layer, q, k, v, out))


Attention = Callable[[int, Tensor, Tensor, Tensor, Tensor], Tensor]


def breaks(attend: Attention) -> Break:
    """`attend` as breaks call it."""
    return lambda q, k, v, out: lambda layer: attend(layer, q, k, v, out)


class Toy:
    """Three layers with registered weights, and buffers for 16 rows."""

    def __init__(self, attend: Attention = attention) -> None:
        generator = torch.Generator().manual_seed(3)
        self.attend = attend
        self.hidden = torch.zeros(16, 8)
        self.result = torch.zeros(16, 8)
        self.qkv = torch.randn(8, 16, generator=generator) / 3
        self.out = torch.randn(8, 8, generator=generator) / 3
        self.arena = BreakArena(SHAPE, 16, torch.float32)
        self.addresses = Addresses()
        for name in ("hidden", "result", "qkv", "out"):
            self.addresses.register(name, getattr(self, name))
        for name, tensor in self.arena.tensors().items():
            self.addresses.register(name, tensor)
        self.pool = RecorderPool(self.addresses)

    def code(self, size: int) -> Callable[[Attend], None]:
        def captured(attend: Attend) -> None:
            x = self.hidden[:size]
            for layer in range(SHAPE.layers):
                heads = (x @ self.qkv).view(size, 4, 4)
                x = x + attend(layer, heads[:, :2], heads[:, 2:3], heads[:, 3:]) @ self.out
            self.result[:size].copy_(x)

        return captured

    @torch.no_grad()
    def capture(self, size: int) -> BreakableGraph:
        site = Site("toy", "prefill", size)
        return capture_breakable(self.code(size), site, breaks(lambda *call: self.attend(*call)), self.arena, self.pool)

    @torch.no_grad()
    def replay(self, graph: BreakableGraph, value: Tensor) -> Tensor:
        self.load(graph.site.size, value)
        graph.replay(value.shape[0])
        return self.result[: value.shape[0]].clone()

    @torch.no_grad()
    def eager(self, size: int, value: Tensor) -> Tensor:
        self.load(size, value)
        self.code(size)(narrowed(breaks(self.attend), size, value.shape[0]))
        return self.result[: value.shape[0]].clone()

    def load(self, size: int, value: Tensor) -> None:
        self.hidden.fill_(torch.nan)
        self.hidden[: value.shape[0]] = value
        self.hidden[value.shape[0] : size] = 0
        self.result.fill_(torch.nan)


def values(count: int, seed: int) -> Tensor:
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("attend", [attention, attention_in_place])
def test_interleaved_sizes_replay_what_the_code_computes(attend: Attention) -> None:
    toy = Toy(attend)
    graphs = {size: toy.capture(size) for size in (16, 8, 4)}
    assert all(graph.segments == SHAPE.layers + 1 for graph in graphs.values())
    for seed, (size, count) in enumerate([(16, 16), (4, 3), (8, 8), (16, 9), (8, 5), (4, 4), (16, 13)]):
        value = values(count, seed)
        assert torch.equal(toy.replay(graphs[size], value), toy.eager(size, value))


def test_a_break_sees_real_rows_only_and_its_padded_tail_is_zero() -> None:
    seen: list[int] = []

    def watching(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
        seen.append(q.shape[0])
        return attention(layer, q, k, v, out)

    toy = Toy(watching)
    graph = toy.capture(8)
    seen.clear()
    toy.arena.out.fill_(torch.nan)
    toy.replay(graph, values(5, 1))
    assert seen == [5, 5, 5]
    assert torch.equal(toy.arena.out[5:8], torch.zeros(3, 8))
    assert toy.arena.out[8:].isnan().all()


def test_a_transposed_attention_output_is_refused() -> None:
    toy = Toy(lambda layer, q, k, v, out: attention(layer, q, k, v, out).t())
    with pytest.raises(CaptureFailed, match=r"model toy, prefill size 16, break after segment 0, layer 0.*\[8, 16\]"):
        toy.capture(16)


def test_a_transposed_output_with_equal_counts_is_refused_by_shape_alone() -> None:
    with pytest.raises(ValueError, match="first dimension"):
        place(torch.zeros(8, 4), torch.zeros(4, 8))


def test_an_exception_in_a_break_at_capture_ends_the_capture_and_says_where() -> None:
    def failing(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
        if layer == 1:
            raise RuntimeError("no kernel")
        return attention(layer, q, k, v, out)

    toy = Toy(failing)
    where = "model toy, prefill size 8, break after segment 1, layer 1: RuntimeError: no kernel"
    with pytest.raises(CaptureFailed, match=where):
        toy.capture(8)
    toy.attend = attention
    graph = toy.capture(8)
    assert torch.equal(toy.replay(graph, values(8, 1)), toy.eager(8, values(8, 1)))


def test_an_exception_in_captured_code_ends_the_capture_and_says_where() -> None:
    toy = Toy()
    toy.out = torch.zeros(3, 3)
    toy.addresses.register("out", toy.out)
    with pytest.raises(CaptureFailed, match="model toy, prefill size 8, segment 1: RuntimeError"):
        toy.capture(8)
    assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
    assert not toy.pool.arena.live


def test_an_exception_in_a_break_at_replay_says_where_and_the_graph_lives_on() -> None:
    broken = False

    def sometimes(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
        if broken and layer == 2:
            raise RuntimeError("page fault")
        return attention(layer, q, k, v, out)

    toy = Toy(sometimes)
    graph = toy.capture(8)
    broken = True
    where = "model toy, prefill size 8, break after segment 2, layer 2: RuntimeError: page fault"
    with pytest.raises(ReplayFailed, match=where):
        toy.replay(graph, values(8, 1))
    broken = False
    assert torch.equal(toy.replay(graph, values(6, 1)), toy.eager(8, values(6, 1)))


@pytest.mark.parametrize("owned", [True, False], ids=["blocks owned", "blocks held weakly"])
def test_break_tensors_held_weakly_in_the_pool_give_wrong_results(owned: bool) -> None:
    toy = Toy()
    graphs = {}
    with torch.no_grad():
        for size in (16, 8):
            graph = PooledBreaks(Site("toy", "prefill", size), breaks(attention), toy.arena, toy.pool)
            graph.owners = [] if owned else None
            graph.begin()
            toy.code(size)(graph.interrupt)
            graph.finish()
            graphs[size] = graph
    right = [
        torch.equal(toy.replay(graphs[size], values(size, size)), toy.eager(size, values(size, size)))
        for size in (16, 8, 16)
    ]
    assert right == [owned, owned, owned]


def test_a_result_left_in_the_pool_is_the_next_sizes_memory() -> None:
    toy = Toy()
    left: dict[int, Tensor] = {}
    graphs = {}
    with torch.no_grad():
        for size in (16, 8):

            def code(attend: Attend, size: int = size) -> None:
                left[size] = toy.hidden[:size] * 2

            graphs[size] = capture_breakable(code, Site("toy", "prefill", size), breaks(attention), toy.arena, toy.pool)
            left[size] = toy.pool.arena.alias(left[size])
    toy.load(16, values(16, 1))
    graphs[16].replay(16)
    result = left[16].clone()
    assert torch.equal(result, values(16, 1) * 2)
    toy.load(8, values(8, 2))
    graphs[8].replay(8)
    assert not torch.equal(left[16], result)
