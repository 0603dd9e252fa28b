"""The CPU recorder has a CUDA graph's failure modes: one arena with liveness that later sizes reuse, results that are
invalid until replayed, host reads and shapes that depend on values refused, moved buffers noticed. The bug that breaks
had elsewhere, put back in `test_01_break_arena`, fails on it.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphpod_runtime.base.errors import CaptureFailed, CaptureOutOfMemory
from graphpod_runtime.graphs.segments.addresses import AddressChanged, Addresses
from graphpod_runtime.graphs.segments.arena import Arena
from graphpod_runtime.graphs.segments.cpu import RecorderPool
from graphpod_runtime.graphs.segments.segment import capture


class Desk:
    """A registered input and output of four rows, and a pool."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.x = torch.zeros(4, 6, dtype=dtype)
        self.y = torch.zeros(4, 6, dtype=dtype)
        self.weight = torch.arange(36, dtype=torch.float32).view(6, 6).to(dtype)
        self.addresses = Addresses()
        for name in ("x", "y", "weight"):
            self.addresses.register(name, getattr(self, name))
        self.pool = RecorderPool(self.addresses)

    @torch.no_grad()
    def replay_of(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """`function` captured on zeros; the returned callable replays it on other values."""
        calls = capture(self.pool.segment(), lambda: self.y.copy_(function(self.x)))

        @torch.no_grad()
        def replay(value: Tensor) -> Tensor:
            self.x.copy_(value)
            self.y.fill_(torch.nan)
            for call in calls:
                call()
            return self.y.clone()

        return replay


def increment_in_place(x: Tensor) -> Tensor:
    y = x * 2
    y[1:3].add_(1)
    y.relu_()
    return y


def squeeze_in_place(x: Tensor) -> Tensor:
    y = (x + 1)[None]
    y.squeeze_(0)
    return y * 3


FUNCTIONS: dict[str, Callable[[Desk, Tensor], Tensor]] = {
    "a product and a sum": lambda desk, x: x @ desk.weight.t() + 1,
    "in-place ops on views": lambda desk, x: increment_in_place(x),
    "a view changed in place": lambda desk, x: squeeze_in_place(x),
    "several outputs": lambda desk, x: torch.cat([part * (index + 1) for index, part in enumerate(x.chunk(3, 1))], 1),
    "an op with two results": lambda desk, x: x.sort(dim=1)[0] + x.max(dim=1, keepdim=True)[0],
    "a factory": lambda desk, x: x + torch.arange(6) + torch.ones(4, 6),
    "an out argument": lambda desk, x: torch.add(x, x, out=torch.empty(4, 6)),
    "indexing by integers": lambda desk, x: desk.weight[x[:, 0].abs().long() % 6],
    "a copy to another dtype": lambda desk, x: (x.double() * 3).float().clone(),
    "a matrix times a vector": lambda desk, x: (x @ desk.weight[0])[:, None].expand(4, 6).contiguous(),
    "a reshape that copies": lambda desk, x: x.t().reshape(4, 6) + 1,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_replay_equals_the_code_on_new_values(name: str) -> None:
    desk = Desk()
    replay = desk.replay_of(lambda x: FUNCTIONS[name](desk, x))
    for seed in (1, 2):
        value = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(replay(value), FUNCTIONS[name](desk, value.clone()))


def test_interleaved_graphs_share_a_pool_and_stay_right() -> None:
    desk = Desk()
    first = desk.replay_of(lambda x: (x * 2 + 1) * 3)
    second = desk.replay_of(lambda x: (x - 5).relu() + x)
    for value in (torch.full((4, 6), 7.0), torch.full((4, 6), -3.0)):
        assert torch.equal(first(value), (value * 2 + 1) * 3)
        assert torch.equal(second(value), (value - 5).relu() + value)


def test_captured_results_are_invalid_until_replayed() -> None:
    desk = Desk()
    kept: list[Tensor] = []
    segment = desk.pool.segment()
    with torch.no_grad():
        capture(segment, lambda: kept.extend((desk.x + 1, torch.arange(3))))
    assert kept[0].isnan().all()
    assert (kept[1] == -1).all()


OUTSIDE = torch.ones(6)


def bool_of(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


REFUSED: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "item": (lambda x: x[0, 0].item(), "host"),
    "tolist": (lambda x: x.tolist(), "tolist"),
    "numpy": (lambda x: x.numpy(), "numpy"),
    "bool": (bool_of, "host"),
    "int": (lambda x: int(x[0, 0]), "host"),
    "float": (lambda x: float(x[0, 0]), "host"),
    "a mask": (lambda x: x[x > 0], "shape depends on values"),
    "nonzero": (lambda x: x.nonzero(), "shape depends on values"),
    "random numbers": (lambda x: torch.rand(4), "random"),
    "dropout": (lambda x: torch.nn.functional.dropout(x), "random"),
    "a host list": (lambda x: x + torch.tensor([1.0] * 6), "neither registered"),
    "a tensor of before": (lambda x: x + OUTSIDE, "neither registered"),
    "resize": (lambda x: (x + 1).resize_(2, 2), "other memory"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_code_that_a_graph_would_freeze_is_refused(name: str) -> None:
    code, reason = REFUSED[name]
    desk = Desk()
    with pytest.raises(CaptureFailed, match=reason):
        desk.replay_of(code)  # type: ignore[arg-type]
    assert torch.equal(desk.replay_of(lambda x: x + 1)(torch.zeros(4, 6)), torch.ones(4, 6))


def test_a_reallocated_registered_tensor_is_noticed() -> None:
    desk = Desk()
    desk.pool.verify()
    desk.x.data = torch.zeros(4, 6)
    with pytest.raises(AddressChanged, match="x was reallocated"):
        desk.pool.verify()


def test_a_replaced_parameter_is_noticed() -> None:
    module = torch.nn.Linear(3, 3)
    addresses = Addresses()
    addresses.register_module(module)
    module.weight = torch.nn.Parameter(torch.zeros(3, 3))
    with pytest.raises(AddressChanged, match=r"weight was reallocated"):
        addresses.verify()


def test_a_name_given_again_does_not_forget_a_storage_that_another_name_shares() -> None:
    tensor = torch.zeros(4)
    addresses = Addresses()
    addresses.register("whole", tensor)
    addresses.register("half", tensor[:2])
    addresses.register("half", torch.zeros(2))
    assert addresses.knows(tensor)


def test_a_block_is_free_when_its_last_view_is_gone() -> None:
    arena = Arena()
    tensor = arena.empty_like(torch.empty(100))
    view = tensor[10:20]
    first = tensor.data_ptr()
    del tensor
    assert arena.empty_like(torch.empty(100)).data_ptr() != first
    del view
    assert arena.empty_like(torch.empty(50)).data_ptr() == first
    assert not arena.live


def test_an_alias_does_not_keep_a_block() -> None:
    arena = Arena()
    tensor = arena.empty_like(torch.empty(8))
    alias = arena.alias(tensor)
    tensor.fill_(3)
    del tensor
    other = arena.empty_like(torch.empty(8)).fill_(4)
    assert torch.equal(alias, other)


def test_intermediates_reuse_memory_within_a_capture() -> None:
    desk = Desk()

    def chain(x: Tensor) -> Tensor:
        for _ in range(50):
            x = x + 1
        return x

    desk.replay_of(chain)
    assert desk.pool.pool_bytes() <= 2 * 128


def test_a_full_pool_raises_and_names_the_limit() -> None:
    arena = Arena(limit=1000)
    kept = arena.empty_like(torch.empty(200))
    with pytest.raises(CaptureOutOfMemory, match="1000 bytes"):
        arena.empty_like(torch.empty(100))
    del kept
    arena.empty_like(torch.empty(100))
