"""Routing and experts by our kernels on a CUDA device, against torch's operators and a loop over experts."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy.model.mixture import Mixture
from graphpod_runtime.base.shapes import Activation
from graphpod_runtime.kernels.mixture.choice_totals import count_choices
from graphpod_runtime.kernels.mixture.expert_rows import expert_rows
from graphpod_runtime.kernels.mixture.plain_experts import plain_experts
from graphpod_runtime.kernels.mixture.routing import Routes, route

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")


def drawn(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(GPU, dtype)


def mixture(experts: int, chosen: int, normalised: bool = True, **more: Any) -> Mixture:
    return Mixture(experts, chosen, 64, normalised, 0, (0,), **more)


def added(made: Tensor, routes: Routes) -> Tensor:
    """Rows to tokens, in single precision."""
    return (made[routes.rows].float() * routes.weights[:, :, None]).sum(1)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(("experts", "chosen"), [(5, 2), (8, 2), (64, 8), (128, 8), (160, 6), (512, 10)])
@pytest.mark.parametrize("tokens", [1, 7, 33, 130, 4096])
def test_routes_are_those_of_torch(tokens: int, experts: int, chosen: int, normalised: bool) -> None:
    scores = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(tokens)).argsort(1).float() / experts
    each = mixture(experts, chosen, normalised, scale=1.5)
    wanted, found = route(scores, each), route(scores.to(GPU), each)
    torch.testing.assert_close(found.weights.cpu(), wanted.weights)
    for name in ("choices", "tokens", "rows", "ends"):
        assert torch.equal(getattr(found, name).cpu(), getattr(wanted, name)), name


@pytest.mark.parametrize("tokens", [7, 33, 4096])
def test_the_launch_that_sorts_rows_counts_them(tokens: int) -> None:
    part = mixture(128, 8).split(0, 2, 2)
    scores, totals = drawn(tokens, 128), torch.zeros(1023, dtype=torch.int64, device=GPU)
    count_choices(totals)
    try:
        first, second = (route(scores, part).choices for _ in range(2))
    finally:
        count_choices(None)
    assert torch.equal(first, second)
    assert torch.equal(totals[:128], 2 * first.flatten().bincount(minlength=128).cumsum(0))
    assert not totals[128:].any()


def test_experts_of_a_few_groups_are_those_of_torch() -> None:
    scores, each = drawn(50, 24), mixture(24, 4, groups=4, chosen_groups=2)
    wanted, found = route(scores.cpu(), each), route(scores, each)
    for name in ("choices", "tokens", "rows", "ends"):
        assert torch.equal(getattr(found, name).cpu(), getattr(wanted, name)), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_of_equal_scores_a_token_chooses_that_many_and_each_once(dtype: torch.dtype) -> None:
    routes = route(torch.zeros(9, 60, dtype=dtype, device=GPU), mixture(60, 4))
    assert all(len(set(chosen)) == 4 for chosen in routes.choices.tolist())
    assert torch.equal(routes.weights, torch.full_like(routes.weights, 0.25))


def test_scores_that_are_no_numbers_choose_experts_that_exist() -> None:
    """Rows of a captured size that no token has may hold anything."""
    scores = drawn(6, 100)
    scores[1], scores[3, 7], scores[4], scores[5] = torch.nan, torch.nan, torch.inf, -torch.inf
    routes = route(scores, mixture(100, 8))
    assert routes.choices.min() >= 0
    assert routes.choices.max() < 100
    assert sorted(routes.rows.flatten().tolist()) == list(range(48))
    assert int(routes.ends[-1]) == 48
    assert torch.equal(routes.choices[0], scores[0].topk(8).indices)


@pytest.mark.parametrize("activation", [Activation.Silu, Activation.GeluTanh])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("hidden", "width"), [(256, 96), (200, 72), (2048, 768)])
@pytest.mark.parametrize("tokens", [1, 7, 64, 700, 2500])
def test_rows_are_what_each_expert_makes(
    tokens: int, hidden: int, width: int, dtype: torch.dtype, activation: Activation
) -> None:
    """Of every tile, whole or with a rest at its edge; the last expert is chosen by nobody, and has no numbers."""
    experts, chosen = 17, 3
    x = drawn(tokens, hidden, dtype=dtype)
    gate_up, down = (
        drawn(experts, 2 * width, hidden, seed=1, dtype=dtype),
        drawn(experts, hidden, width, seed=2, dtype=dtype),
    )
    gate_up, down = gate_up * hidden**-0.5, down * width**-0.5
    gate_up[-1], down[-1] = torch.nan, torch.nan
    scores = drawn(tokens, experts, seed=3)
    scores[:, -1] = -100.0
    routes = route(scores, mixture(experts, chosen))
    found = added(expert_rows(x, gate_up, down, routes.tokens, routes.ends, activation), routes)
    wanted = plain_experts(x, gate_up[:-1], down[:-1], routes.choices, routes.weights, activation).float()
    near = 2**-7 if dtype is torch.bfloat16 else 2**-10
    assert (found - wanted).abs().max() <= 2 * near * wanted.abs().max()


def test_one_graph_holds_every_routing() -> None:
    """Captured while each token had an expert of its own, replayed while all have the same."""
    experts, chosen, tokens, hidden, width = 32, 2, 16, 256, 128
    dtype = torch.bfloat16
    x = drawn(tokens, hidden, dtype=dtype)
    gate_up = drawn(experts, 2 * width, hidden, seed=1, dtype=dtype) * hidden**-0.5
    down = drawn(experts, hidden, width, seed=2, dtype=dtype) * width**-0.5
    scores = drawn(tokens, experts, seed=3)

    def whole() -> Tensor:
        routes = route(scores, mixture(experts, chosen))
        return added(expert_rows(x, gate_up, down, routes.tokens, routes.ends, Activation.Silu), routes)

    whole()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = whole()
    for other in (torch.zeros_like(scores), drawn(tokens, experts, seed=4), drawn(tokens, experts, seed=5)):
        scores.copy_(other)
        graph.replay()
        assert torch.equal(held, whole())
