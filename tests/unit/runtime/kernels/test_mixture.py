"""Routing and products by experts, against loops over tokens."""

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_policy.model.mixture import Mixture
from graphpod_runtime.base.errors import CompileFailed
from graphpod_runtime.base.pinned_choices import PinnedChoices
from graphpod_runtime.compiled.source_comparison import prove
from graphpod_runtime.kernels.mixture import grouped_product as products
from graphpod_runtime.kernels.mixture.grouped_product import grouped_product, plain_product
from graphpod_runtime.kernels.mixture.routing import route
from graphpod_runtime.models.mlp.experts import Experts, mixed

EXPERTS, CHOSEN, INPUTS, OUTPUTS = 5, 2, 24, 16


def drawn(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("tokens", [1, 7])
def test_rows_lie_by_experts_and_each_pair_knows_its_row(tokens: int, normalised: bool) -> None:
    scores = drawn(tokens, EXPERTS)
    routes = route(scores, CHOSEN, normalised)
    values, chosen = scores.softmax(-1).topk(CHOSEN)
    assert torch.allclose(routes.weights, values / values.sum(-1, keepdim=True) if normalised else values)
    assert routes.ends.tolist() == [int((chosen <= expert).sum()) for expert in range(EXPERTS)]
    starts = [0, *routes.ends.tolist()[:-1]]
    for token in range(tokens):
        for expert, row in zip(chosen[token].tolist(), routes.rows[token].tolist(), strict=True):
            assert starts[expert] <= row < routes.ends[expert]
            assert int(routes.tokens[row]) == token
    assert sorted(routes.rows.flatten().tolist()) == list(range(tokens * CHOSEN))


@pytest.mark.parametrize("counts", [(0, 3, 0, 4, 2), (1, 0, 0, 0, 0), (9, 9, 9, 9, 9)])
@pytest.mark.parametrize("gathered", [0, products.GATHERED])
def test_products_are_those_of_each_expert_in_every_form(
    counts: tuple[int, ...], gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "GATHERED", gathered)
    x, weight = drawn(sum(counts), INPUTS), drawn(EXPERTS, OUTPUTS, INPUTS, seed=1)
    ends = torch.tensor(counts).cumsum(0).int()
    wanted = torch.cat([functional.linear(rows, weight[e]) for e, rows in enumerate(x.split(counts))])
    assert products.by_torch(x, weight)
    assert torch.allclose(grouped_product(x, weight, ends), wanted, atol=1e-5)
    experts = torch.arange(EXPERTS).repeat_interleave(torch.tensor(counts))
    assert torch.allclose(plain_product(x, weight, experts), wanted, atol=1e-5)


def test_an_expert_that_overflows_reaches_only_rows_that_chose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "GATHERED", 0)
    weight = drawn(EXPERTS, OUTPUTS, INPUTS)
    weight[2] = torch.inf
    experts = torch.tensor([0, 1, 2, 4])
    finite = plain_product(drawn(4, INPUTS), weight, experts).isfinite().all(-1)
    assert finite.tolist() == [True, True, False, True]


@pytest.mark.parametrize("form", ["torch", "each expert", "gathered"])
def test_rows_of_padding_reach_no_others(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may hold anything, and are rows of some expert. Torch's product on a CPU rounds a row in its way for each
    number of rows, as its plain one does."""
    monkeypatch.setattr(products, "GATHERED", products.GATHERED if form == "gathered" else 0)
    if form != "torch":
        monkeypatch.setattr(products, "by_torch", lambda x, weight: False)
    experts = experts_of(Mixture(EXPERTS, CHOSEN, 8, True, 8, (0,)))
    x, other = drawn(9, INPUTS), drawn(9, INPUTS)
    x[5:], other[5:] = torch.nan, 1e30
    one, two = (mixed(experts.mixture, rows, *experts.arguments()[::2], functional.silu)[:5] for rows in (x, other))  # type: ignore[misc]
    assert one.isfinite().all()
    furthest = (one - two).abs().max() / one.abs().max()
    assert furthest <= (1e-5 if form == "torch" else 0)


def experts_of(mixture: Mixture) -> Experts:
    experts = Experts(mixture, INPUTS, torch.float32)
    for seed, parameter in enumerate(experts.parameters()):
        parameter.data.copy_(drawn(*parameter.shape, seed=seed))
    return experts


def chosen_roughly(x: Tensor, router: Tensor, stack: Tensor) -> Tensor:
    """The experts' products summed, by scores that are rounded."""
    return _chosen(functional.linear(x.bfloat16(), router.bfloat16()), x, stack)


def chosen_exactly(x: Tensor, router: Tensor, stack: Tensor) -> Tensor:
    return _chosen(functional.linear(x, router), x, stack)


def _chosen(scores: Tensor, x: Tensor, stack: Tensor) -> Tensor:
    routes = route(scores, CHOSEN, True)
    return grouped_product(x[routes.tokens], stack, routes.ends)[routes.rows].sum(1)


def test_a_choice_that_rounding_tips_is_no_other_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code rounds scores in its own way. Without what pins the choices this would be refused, as it should be
    where the experts compute something else."""
    examples = (drawn(4, INPUTS), drawn(EXPERTS, INPUTS), drawn(EXPERTS, OUTPUTS, INPUTS))
    prove("after", lambda tensors: (chosen_roughly(*tensors),), chosen_exactly, examples, (0,))
    with pytest.raises(CompileFailed, match="computes something else"):
        prove("after", lambda tensors: (chosen_roughly(*tensors) * 1.01,), chosen_exactly, examples, (0,))
    monkeypatch.setattr(PinnedChoices, "_settled", lambda self, choices: choices)
    with pytest.raises(CompileFailed, match="computes something else"):
        prove("after", lambda tensors: (chosen_roughly(*tensors),), chosen_exactly, examples, (0,))
