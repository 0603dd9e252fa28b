"""Three layers whose attention is a break, without an engine around them."""

from collections.abc import Callable

import torch
from torch import Tensor

from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.graphs.break_arena import AttendInto, BreakArena, narrowed
from graphpod_runtime.graphs.breakable import BreakableCapture, capture_breakable
from graphpod_runtime.graphs.capture_errors import CaptureSite
from graphpod_runtime.graphs.captured_graphs import BreakableGraph
from graphpod_runtime.graphs.segments.addresses import Addresses
from tests.contracts.pools import capturing

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
ROWS = 16

Attention = Callable[[int, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(layer, q, k, v, where the result may go) -> the result."""


def attention(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
    """Rows see each other, so a padded or a stale row changes the others. Its result is a tensor of its own."""
    return torch.softmax(q.flatten(1).sum(1, keepdim=True) * k.flatten(1).sum(1), 1) @ v.flatten(1).repeat(1, 2) + layer


def attention_in_place(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
    """The same, where it may go."""
    return out.copy_(attention(layer, q, k, v, out))


def breaks(attend: Attention) -> AttendInto:
    """`attend` as breaks call it."""
    return lambda q, k, v, out: lambda layer: attend(layer, q, k, v, out)


class Toy:
    """Registered weights, buffers for ROWS rows, an arena and a pool on `place`. `graph` is how breaks are made."""

    def __init__(self, place: Place, attend: Attention = attention) -> None:
        generator = torch.Generator().manual_seed(3)
        self.device = place.device
        self.attend = attend
        self.hidden = torch.zeros(ROWS, 8, device=self.device)
        self.result = torch.zeros(ROWS, 8, device=self.device)
        self.qkv = (torch.randn(8, 16, generator=generator) / 3).to(self.device)
        self.out = (torch.randn(8, 8, generator=generator) / 3).to(self.device)
        self.arena = BreakArena(SHAPE, ROWS, torch.float32, self.device)
        self.addresses = Addresses()
        for name in ("hidden", "result", "qkv", "out"):
            self.addresses.register(name, getattr(self, name))
        for name, tensor in self.arena.tensors().items():
            self.addresses.register(name, tensor)
        self.pool = place.pool(self.addresses)

    def code(self, size: int) -> Callable[[Attend], None]:
        """What a graph of `size` captures."""

        def captured(attend: Attend) -> None:
            x = self.hidden[:size]
            for layer in range(SHAPE.layers):
                heads = (x @ self.qkv).view(size, 4, 4)
                x = x + attend(layer, heads[:, :2], heads[:, 2:3], heads[:, 3:]) @ self.out
            self.result[:size].copy_(x)

        return captured

    def capture(self, size: int, code: Callable[[Attend], None] | None = None) -> BreakableGraph:
        """The graph of `size`, of this code unless another is given."""
        site, attend = CaptureSite("toy", "prefill", size), breaks(lambda *call: self.attend(*call))
        with capturing(self.pool):
            self.pool.warm(lambda: self.code(size)(narrowed(breaks(attention), size, size)))
            return capture_breakable(code or self.code(size), site, attend, self.arena, self.pool)

    @torch.no_grad()
    def capture_as(self, kind: type[BreakableCapture], size: int) -> BreakableGraph:
        """The graph of `size` as another kind of graph."""
        with capturing(self.pool):
            self.pool.warm(lambda: self.code(size)(narrowed(breaks(attention), size, size)))
            capture = kind(CaptureSite("toy", "prefill", size), breaks(self.attend), self.arena, self.pool)
            capture.begin()
            self.code(size)(capture.interrupt)
            capture.finish()
        return capture.graph

    @torch.no_grad()
    def replay(self, graph: BreakableGraph, value: Tensor) -> Tensor:
        """`value` [rows, 8] through `graph`."""
        self.load(graph.site.size, value)
        graph.replay(value.shape[0])
        return self.result[: value.shape[0]].clone()

    @torch.no_grad()
    def eager(self, size: int, value: Tensor) -> Tensor:
        """`value` through the code that the graph of `size` captured, uncaptured."""
        self.load(size, value)
        self.code(size)(narrowed(breaks(self.attend), size, value.shape[0]))
        return self.result[: value.shape[0]].clone()

    def load(self, size: int, value: Tensor) -> None:
        """`value` into the buffers of `size`, poison into what this pass must not read."""
        self.hidden.fill_(torch.nan)
        self.hidden[: value.shape[0]] = value.to(self.device)
        self.hidden[value.shape[0] : size] = 0
        self.result.fill_(torch.nan)


def values(count: int, seed: int) -> Tensor:
    """[count, 8]"""
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
