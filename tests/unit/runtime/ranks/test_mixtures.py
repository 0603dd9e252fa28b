"""Ranks that share a mixture of experts write what one rank writes: by every policy, for every family."""

from pathlib import Path
from typing import Any

import pytest
import torch

from graphpod_policy import CompileMode, Policy
from graphpod_policy.config import FeatureConfig
from graphpod_policy.model.mixture import Mixture
from graphpod_runtime.engine.ranks.expert_balance import PASSES, ExpertBalance
from graphpod_runtime.kernels.mixture.choice_totals import count_choices
from graphpod_runtime.kernels.mixture.routing import route
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.wire.counters import Counters
from tests.unit.runtime.ranks.conftest import GREEDY, POLICIES, SCORED, VOCABULARY, alone, config, sampled
from tests.unit.runtime.ranks.rank_forks import RankForks
from truth.families.tiny import tiny
from truth.families.trial import written

CHANGES: dict[str, dict[str, Any]] = {
    "mixtral": {},
    "qwen2_moe": {"mlp_only_layers": [0], "shared_expert_intermediate_size": 48},
    "qwen3_moe": {"norm_topk_prob": True},
    "granitemoe": {},
    "olmoe": {"clip_qkv": 0.5},
    "deepseek_v2": {"n_routed_experts": 6},
}
"""By model types; a layer of Qwen2-MoE and one of DeepSeek-V2 are dense."""


def mixture(folder: Path, model_type: str, **more: Any) -> Path:
    changes = CHANGES[model_type] | more
    written(tiny(model_type, vocab_size=VOCABULARY, num_experts=6, num_local_experts=6, **changes), folder)
    return folder


@pytest.fixture(scope="module")
def half_dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixture(tmp_path_factory.mktemp("mixture"), "qwen2_moe")


@pytest.mark.parametrize(("tensor", "expert"), [(2, 1), pytest.param(2, 2, marks=pytest.mark.slow), (4, 2)])
@pytest.mark.parametrize(("prefill", "decode"), sampled(*POLICIES, count=1))
def test_ranks_with_columns_of_each_expert_or_with_some_experts_write_what_one_writes(
    ranks: RankForks, half_dense: Path, prefill: Policy, decode: Policy, tensor: int, expert: int
) -> None:
    """Or with columns of some."""
    found = ranks.answer(config(half_dense, prefill, decode, tensor=tensor, expert=expert), GREEDY, SCORED)
    assert not found.failure
    wanted = alone(half_dense, GREEDY, SCORED)
    assert [told.texts for told in found.told] == [told.texts for told in wanted]
    for own, other in zip(found.told[1].scored, wanted[1].scored, strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    if prefill is not Policy.Disabled:
        assert found.graphs == {"prefill": (prefill.value, 2, "Passed"), "decode": (decode.value, 2, "Passed")}
        # Piecewise scores no prompt on a graph.
        assert (found.fallbacks > 0) is (prefill is Policy.Piecewise)
    rows = list(found.expert_rows.values())
    assert len(rows) == (0 if expert == 1 else tensor)
    assert all(rows)
    # One of two layers is of experts, and ranks that share columns compute the same rows.
    assert rows[: tensor // 2] == rows[:1] * (len(rows) // 2)


def test_rows_of_each_rank_are_counted_where_experts_are_routed() -> None:
    """Those that captures and checks computed are none, and the host reads them each few passes."""
    counters, generator = Counters(), torch.Generator().manual_seed(3)
    whole = Mixture(6, 2, 8, True, 0, (0,))
    balance = ExpertBalance(FeatureConfig(tensor=4, expert=2), torch.device("cpu"), counters)
    try:
        route(torch.rand(5, 6, generator=generator), whole.split(0, 4, 2))
        balance.begin(6)
        counted = [0, 0]
        for _ in range(PASSES):
            scores = torch.rand(5, 6, generator=generator)
            for rank in range(4):
                choices = route(scores, whole.split(rank, 4, 2)).choices
            route(scores, whole)
            counted = [counted[0] + 2 * int((choices < 3).sum()), counted[1] + 2 * int((choices >= 3).sum())]
            assert counters.value("graphpod_expert_rows_total") == 0
            balance.landed()
        balance.landed()
    finally:
        count_choices(None)
    found = [counters.value("graphpod_expert_rows_total", rank=str(rank)) for rank in range(4)]
    assert found == [counted[0], counted[0], counted[1], counted[1]]


@pytest.mark.slow
def test_stages_with_layers_of_experts_write_what_one_rank_writes(ranks: RankForks, half_dense: Path) -> None:
    found = ranks.answer(config(half_dense, Policy.Breakable, Policy.Full, pipeline=2, tensor=2), GREEDY)
    assert not found.failure
    assert found.told[0].texts == alone(half_dense, GREEDY)[0].texts
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}


def test_a_stage_with_more_kinds_of_layers_than_another_compiles_more(ranks: RankForks, tmp_path: Path) -> None:
    """The first one has a dense layer and one of experts, the second one of experts alone."""
    folder = mixture(tmp_path, "qwen2_moe", num_hidden_layers=3, layer_types=["full_attention"] * 3)
    asked = config(folder, Policy.Breakable, Policy.Full, pipeline=2, compile=CompileMode.Inductor)
    found = ranks.answer(asked, GREEDY, as_written=True)
    assert not found.failure
    assert found.told[0].texts == alone(folder, GREEDY)[0].texts
    assert found.layers == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", [name for name in CHANGES if name != "qwen2_moe"])
@pytest.mark.parametrize(("tensor", "expert"), [(2, 1), (2, 2), (4, 2)])
def test_each_family_is_divided(ranks: RankForks, tmp_path: Path, model_type: str, tensor: int, expert: int) -> None:
    folder = mixture(tmp_path, model_type)
    found = ranks.answer(config(folder, Policy.Breakable, Policy.Full, tensor=tensor, expert=expert), GREEDY)
    assert not found.failure
    assert found.told[0].texts == alone(folder, GREEDY)[0].texts


@pytest.mark.parametrize("model_type", ["mixtral", "granitemoe"])
def test_a_rank_has_its_experts_alone(tmp_path: Path, model_type: str) -> None:
    """Also where they are stacks in the checkpoint."""
    folder = mixture(tmp_path, model_type)
    whole = load_model(folder, torch.float32, 64).module().state_dict()
    parts = [load_model(folder, torch.float32, 64, rank=rank, ranks=2, expert_groups=2) for rank in range(2)]
    tensors = [part.module().state_dict() for part in parts]
    for name in (f"body.layers.{layer}.mlp.{stack}" for layer in range(2) for stack in ("gate_up", "down")):
        assert [len(part[name]) for part in tensors] == [3, 3]
        assert torch.equal(torch.cat([part[name] for part in tensors]), whole[name])


def test_ranks_of_a_group_have_columns_of_its_experts(half_dense: Path) -> None:
    """Of four ranks the first two have the first three experts, and a half of their columns each."""
    whole = load_model(half_dense, torch.float32, 64).module().state_dict()
    parts = [
        load_model(half_dense, torch.float32, 64, rank=rank, ranks=4, expert_groups=2).module().state_dict()
        for rank in range(4)
    ]
    name = "body.layers.1.mlp"
    for group in range(2):
        experts, (one, other) = slice(3 * group, 3 * group + 3), parts[2 * group : 2 * group + 2]
        down = torch.cat((one[f"{name}.down"], other[f"{name}.down"]), -1)
        assert torch.equal(down, whole[f"{name}.down"][experts])
        (gate, up), (gate_too, up_too) = (part[f"{name}.gate_up"].chunk(2, -2) for part in (one, other))
        assert torch.equal(torch.cat((gate, gate_too, up, up_too), -2), whole[f"{name}.gate_up"][experts])
    shared = torch.cat([part[f"{name}.shared_down"] for part in parts], -1)
    assert torch.equal(shared, whole[f"{name}.shared_down"])


@pytest.mark.parametrize("model_type", CHANGES)
def test_a_rank_has_its_columns_of_every_expert(tmp_path: Path, model_type: str) -> None:
    folder = mixture(tmp_path, model_type)
    whole = load_model(folder, torch.float32, 64).module().state_dict()
    parts = [load_model(folder, torch.float32, 64, rank=rank, ranks=2).module().state_dict() for rank in range(2)]
    halved = 0
    for name, tensor in whole.items():
        if "mlp." not in name or tensor.dim() < 2:
            continue
        own = [part[name] for part in parts]
        if name.endswith(("router", "shared_gate")):
            assert all(torch.equal(one, tensor) for one in own)
        elif "down" in name:
            assert torch.equal(torch.cat(own, -1), tensor)
            halved += 1
        else:
            gates, ups = zip(*(one.chunk(2, -2) for one in own), strict=True)
            assert torch.equal(torch.cat((*gates, *ups), -2), tensor)
            halved += 1
    assert halved == {"qwen2_moe": 6, "deepseek_v2": 6}.get(model_type, 4)
