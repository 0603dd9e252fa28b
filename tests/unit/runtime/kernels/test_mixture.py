"""Routing and products by experts, against loops over tokens."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_policy.model.mixture import Mixture
from graphpod_runtime.base.errors import CompileFailed
from graphpod_runtime.base.pinned_choices import PinnedChoices
from graphpod_runtime.base.shapes import Activation
from graphpod_runtime.compiled.source_comparison import prove
from graphpod_runtime.kernels.mixture import expert_rows
from graphpod_runtime.kernels.mixture import plain_experts as plain
from graphpod_runtime.kernels.mixture.grouped_product import grouped_product, is_built
from graphpod_runtime.kernels.mixture.routing import route
from graphpod_runtime.kernels.mixture.tiles import DOWN, WIDE, Tile, tile
from graphpod_runtime.models.mlp import experts as of_experts
from graphpod_runtime.models.mlp.experts import Experts, mixed

EXPERTS, CHOSEN, INPUTS, OUTPUTS, WIDTH = 5, 2, 24, 16, 8


def mixture(chosen: int, normalised: bool = True, **changes: Any) -> Mixture:
    return Mixture(EXPERTS, chosen, WIDTH, normalised, 0, (0,))._replace(**changes)


def drawn(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("tokens", [1, 7])
def test_rows_lie_by_experts_and_each_pair_knows_its_row(tokens: int, normalised: bool) -> None:
    scores = drawn(tokens, EXPERTS)
    routes = route(scores, mixture(CHOSEN, normalised))
    values, chosen = scores.softmax(-1).topk(CHOSEN)
    assert torch.allclose(routes.weights, values / values.sum(-1, keepdim=True) if normalised else values)
    assert routes.ends.tolist() == [int((chosen <= expert).sum()) for expert in range(EXPERTS)]
    starts = [0, *routes.ends.tolist()[:-1]]
    for token in range(tokens):
        for expert, row in zip(chosen[token].tolist(), routes.rows[token].tolist(), strict=True):
            assert starts[expert] <= row < routes.ends[expert]
            assert int(routes.tokens[row]) == token
    assert sorted(routes.rows.flatten().tolist()) == list(range(tokens * CHOSEN))


def test_experts_of_a_few_groups_are_chosen_and_weights_are_scaled() -> None:
    """Groups of two: the largest score of a group counts, and its other expert may be chosen before better ones."""
    scores = torch.tensor([[3.0, -2.0, 2.0, 1.9, 1.0, 0.9]])
    routes = route(scores, mixture(2, False, groups=3, chosen_groups=1, scale=4.0))
    assert routes.choices.tolist() == [[0, 1]]
    assert torch.allclose(routes.weights, 4 * scores.softmax(-1)[:, :2])
    assert route(scores, mixture(3, groups=3, chosen_groups=2)).choices.tolist() == [[0, 2, 3]]


@pytest.mark.parametrize("counts", [(0, 3, 0, 4, 2), (1, 0, 0, 0, 0), (9, 9, 9, 9, 9)])
def test_products_are_those_of_each_expert(counts: tuple[int, ...]) -> None:
    x, weight = drawn(sum(counts), INPUTS), drawn(EXPERTS, OUTPUTS, INPUTS, seed=1)
    ends = torch.tensor(counts).cumsum(0).int()
    wanted = torch.cat([functional.linear(rows, weight[e]) for e, rows in enumerate(x.split(counts))])
    assert is_built(x, weight)
    assert torch.allclose(grouped_product(x, weight, ends), wanted, atol=1e-5)


def of_loop(experts: Experts, x: Tensor) -> Tensor:
    """What experts make of x, token by token and expert by expert, in the type of x but for the sum."""
    mixture, rows = experts.mixture, []
    scores = functional.linear(x, experts.router).float()
    for token, row in zip(x, scores, strict=True):
        values, chosen = row.topk(mixture.chosen)
        weights = values.softmax(-1) if mixture.normalised else row.softmax(-1)[chosen]
        made = [mlp(token, experts.gate_up[expert], experts.down[expert]).float() for expert in chosen]
        result = sum(weight * one for weight, one in zip(weights, made, strict=True)).to(x.dtype)  # type: ignore[union-attr]
        if experts.shared_gate is not None:
            assert experts.shared_gate_up is not None
            assert experts.shared_down is not None
            gate = functional.linear(token, experts.shared_gate).sigmoid()
            result = result + gate * mlp(token, experts.shared_gate_up, experts.shared_down)
        rows.append(result)
    return torch.stack(rows)


def mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = functional.linear(x, gate_up).chunk(2, dim=-1)
    return functional.linear(functional.silu(gate) * up, down)


FORMS = ["torch", "each expert", "gathered", "gathered in parts"]


@pytest.fixture
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a mixture is computed, whatever the number of tokens."""
    name = str(request.param)
    if name != "torch":
        monkeypatch.setattr(of_experts, "is_built", lambda x, weight: False)
    if name == "each expert":
        monkeypatch.setattr(plain, "_gathered", plain._every_expert)
    elif name != "torch":
        monkeypatch.setattr(plain, "_every_expert", plain._gathered)
    if name == "gathered in parts":
        monkeypatch.setattr(plain, "GATHERED_WEIGHTS", 3 * 2 * WIDTH * INPUTS)
    return name


@pytest.mark.parametrize("form", FORMS, indirect=True)
@pytest.mark.parametrize(("dtype", "furthest"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize(("normalised", "shared"), [(True, 0), (False, 8)])
@pytest.mark.parametrize("tokens", [1, 9])
@pytest.mark.usefixtures("form")
def test_a_mixture_is_what_a_loop_over_tokens_and_experts_makes(
    tokens: int, normalised: bool, shared: int, dtype: torch.dtype, furthest: float
) -> None:
    experts = experts_of(Mixture(EXPERTS, CHOSEN, WIDTH, normalised, shared, (0,)), dtype)
    experts.router[3] = 0
    experts.router[3, 0] = -1e3  # with the first element above 0 nobody chooses it
    x = drawn(tokens, INPUTS).to(dtype)
    x[:, 0] = x[:, 0].abs() + 1
    found, wanted = computed(experts, x), of_loop(experts, x)
    assert found.dtype is dtype
    assert (found - wanted).abs().max() <= furthest * wanted.abs().max()


def test_few_pairs_gather_and_more_pass_every_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as there are no more pairs than experts."""
    taken = []
    for name in ("_gathered", "_every_expert"):
        monkeypatch.setattr(plain, name, lambda x, *_, name=name: taken.append(name) or x)
    monkeypatch.setattr(of_experts, "is_built", lambda x, weight: False)
    experts = experts_of(Mixture(EXPERTS, CHOSEN, WIDTH, True, 0, (0,)))
    for tokens in (1, 2, 3):
        computed(experts, drawn(tokens, INPUTS))
    assert taken == ["_gathered", "_gathered", "_every_expert"]


@pytest.mark.parametrize("form", FORMS, indirect=True)
@pytest.mark.parametrize("tokens", [1, 9])
@pytest.mark.usefixtures("form")
def test_what_ranks_make_by_their_experts_is_in_sum_what_one_makes(tokens: int) -> None:
    """Of the expert of every token each has columns."""
    whole = Mixture(EXPERTS + 1, CHOSEN, WIDTH, True, 8, (0,))
    experts, x, ranks = experts_of(whole), drawn(tokens, INPUTS), 2
    total = torch.zeros_like(x)
    for rank in range(ranks):
        part = experts_of(whole.split(rank, ranks, ranks))
        assert part.mixture.held == range(rank * 3, rank * 3 + 3)
        part.router.copy_(experts.router)
        part.shared_gate.copy_(experts.shared_gate)  # type: ignore[union-attr,arg-type]
        held = slice(part.mixture.held.start, part.mixture.held.stop)
        part.gate_up.copy_(experts.gate_up[held])
        part.down.copy_(experts.down[held])
        columns = slice(rank * 4, rank * 4 + 4)
        assert experts.shared_gate_up is not None
        assert experts.shared_down is not None
        gate, up = experts.shared_gate_up.chunk(2)
        part.shared_gate_up.copy_(torch.cat((gate[columns], up[columns])))  # type: ignore[union-attr]
        part.shared_down.copy_(experts.shared_down[:, columns])  # type: ignore[union-attr]
        total += computed(part, x)
    wanted = computed(experts, x)
    assert (total - wanted).abs().max() <= 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("form", FORMS[1:], indirect=True)
@pytest.mark.usefixtures("form")
def test_an_expert_that_overflows_reaches_only_rows_that_chose_it() -> None:
    experts = experts_of(Mixture(EXPERTS, 1, WIDTH, True, 0, (0,)))
    experts.down[2] = torch.inf
    x = drawn(9, INPUTS)
    chose = functional.linear(x, experts.router).argmax(-1) == 2
    assert 0 < int(chose.sum()) < 9
    assert torch.equal(computed(experts, x).isfinite().all(-1), ~chose)


@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_rows_of_padding_reach_no_others(form: str) -> None:
    """They may hold anything, and are rows of some expert. Torch's product on a CPU rounds a row in its way for each
    number of rows, as its plain one does."""
    experts = experts_of(Mixture(EXPERTS, CHOSEN, WIDTH, True, 8, (0,)))
    x, other = drawn(9, INPUTS), drawn(9, INPUTS)
    x[5:], other[5:] = torch.nan, 1e30
    one, two = (computed(experts, rows)[:5] for rows in (x, other))
    assert one.isfinite().all()
    furthest = (one - two).abs().max() / one.abs().max()
    assert furthest <= (1e-5 if form == "torch" else 0)


def computed(experts: Experts, x: Tensor) -> Tensor:
    wide, _, down, _ = experts.arguments()
    return mixed(experts.mixture, x, wide, down, Activation.Silu)  # type: ignore[arg-type]


def experts_of(mixture: Mixture, dtype: torch.dtype = torch.float32) -> Experts:
    experts = Experts(mixture, INPUTS, dtype)
    for seed, parameter in enumerate(experts.parameters()):
        parameter.data.copy_(drawn(*parameter.shape, seed=seed) / 4)
    return experts


def chosen_roughly(x: Tensor, router: Tensor, stack: Tensor) -> Tensor:
    """The experts' products summed, by scores that are rounded."""
    return _chosen(functional.linear(x.bfloat16(), router.bfloat16()), x, stack)


def chosen_exactly(x: Tensor, router: Tensor, stack: Tensor) -> Tensor:
    return _chosen(functional.linear(x, router), x, stack)


def _chosen(scores: Tensor, x: Tensor, stack: Tensor) -> Tensor:
    routes = route(scores, mixture(CHOSEN))
    return grouped_product(x[routes.tokens], stack, routes.ends)[routes.rows].sum(1)


def test_a_choice_that_rounding_tips_is_no_other_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code rounds scores in its own way. Without what pins the choices this would be refused, as it should be
    where the experts compute something else."""
    examples = (drawn(4, INPUTS), drawn(EXPERTS, INPUTS), drawn(EXPERTS, OUTPUTS, INPUTS))
    prove("after", lambda tensors: (chosen_roughly(*tensors),), chosen_exactly, examples, (0,))
    with pytest.raises(CompileFailed, match="computes something else"):
        prove("after", lambda tensors: (chosen_roughly(*tensors) * 1.01,), chosen_exactly, examples, (0,))
    monkeypatch.setattr(PinnedChoices, "_settled", lambda self, choices, scores: choices)
    with pytest.raises(CompileFailed, match="computes something else"):
        prove("after", lambda tensors: (chosen_roughly(*tensors),), chosen_exactly, examples, (0,))


def test_scores_of_other_choices_are_another_function() -> None:
    """One expert for each token, with the weight 1: nothing but the choice depends on scores."""

    def chosen_by(sign: float) -> Callable[..., Tensor]:
        def function(x: Tensor, router: Tensor, stack: Tensor) -> Tensor:
            routes = route(functional.linear(x, router) * sign, mixture(1))
            return grouped_product(x[routes.tokens], stack, routes.ends)[routes.rows].sum(1)

        return function

    examples = (drawn(4, INPUTS), drawn(EXPERTS, INPUTS), drawn(EXPERTS, OUTPUTS, INPUTS))
    prove("after", lambda tensors: (chosen_by(1.0)(*tensors),), chosen_by(1.0), examples, (0,))
    with pytest.raises(CompileFailed, match="a router's choice is"):
        prove("after", lambda tensors: (chosen_by(-1.0)(*tensors),), chosen_by(1.0), examples, (0,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ops_say_what_they_return_and_write_nowhere(dtype: torch.dtype) -> None:
    """A compiler believes their shapes."""
    experts = experts_of(Mixture(EXPERTS, CHOSEN, WIDTH, True, 0, (0,)), dtype)
    x, scores = drawn(7, INPUTS).to(dtype), drawn(7, EXPERTS).to(dtype)
    routes = route(scores, mixture(CHOSEN))
    ops, stacks = torch.ops.graphpod, (experts.gate_up, experts.down)
    for op, arguments in (
        (ops.route, (scores, CHOSEN, True, 1, 1, 1.0, 0, EXPERTS)),
        (ops.route, (scores, CHOSEN, True, 1, 1, 1.0, 2, 2)),
        (ops.grouped_product, (x[routes.tokens], experts.gate_up, routes.ends)),
        (ops.plain_experts, (x, *stacks, routes.choices, routes.weights, False)),
    ):
        torch.library.opcheck(op.default, arguments, test_utils=("test_schema", "test_faketensor"))


def test_a_compiler_asks_once_what_the_gpu_has_and_does_not_trace_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole graphs are compiled: a question to a driver among them would leave the function uncompiled."""

    def capability(device: torch.device) -> tuple[int, int]:
        with Path("/dev/null").open():  # nothing that can be traced
            return expert_rows.CAPABLE, 0

    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    expert_rows._major.cache_clear()
    code = torch.compile(lambda x: x * 2 if expert_rows._capable(x.device) else x, fullgraph=True, backend="eager")
    assert torch.equal(code(torch.ones(3)), torch.full((3,), 2.0))
    expert_rows._major.cache_clear()


@pytest.mark.parametrize(
    ("pairs", "experts", "rows"),
    [(8, 128, 16), (256, 128, 16), (1024, 128, 32), (4096, 128, 64), (16384, 128, 128), (2, 8, 16), (64, 8, 32)],
)
def test_a_tile_has_as_many_rows_as_experts_have_on_average(pairs: int, experts: int, rows: int) -> None:
    assert {tile(tiles, pairs, experts, 1 << 20).rows for tiles in (WIDE, DOWN)} == {rows}


@pytest.mark.parametrize("tiles", [WIDE, DOWN])
@pytest.mark.parametrize("shared_memory", [48 << 10, 99 << 10, 163 << 10, 227 << 10])
@pytest.mark.parametrize("pairs", [1, 1024, 4096, 1 << 16])
def test_a_tile_fits_into_the_shared_memory_of_its_gpu(
    tiles: Mapping[int, Tile], shared_memory: int, pairs: int
) -> None:
    """Of an old GPU, an L4, an A100 and an H100."""
    found = tile(tiles, pairs, 128, shared_memory)
    assert found.shared_memory <= shared_memory
    assert found.stages >= 2
    assert found.inputs >= 32
