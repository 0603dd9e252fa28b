"""Estimates: near what was measured, never lower for a weaker policy, and the ceilings that follow."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_policy import CompileMode, Device, Facts, Features, GraphRequest, ModelFacts, Policy, refine, resolve
from graphpod_policy.cost import Cost, budget, ladder_costs, phase_cost, pool_bytes, size_cost
from graphpod_policy.ladder import prefill_ladder
from graphpod_policy.resolve import AUTO_ORDER
from tests.unit.policy import services
from tests.unit.policy.services import CUDA, DECODE, GIB, PREFILL

QWEN_8B = ModelFacts("Qwen3ForCausalLM", 36, 4096, 12288, 32, 8, 128, 151936)
QWEN_06B = ModelFacts("Qwen3ForCausalLM", 28, 1024, 3072, 16, 8, 128, 151936)
SMOLLM2 = ModelFacts("LlamaForCausalLM", 30, 576, 1536, 9, 3, 64, 49152)


@pytest.mark.parametrize(
    ("model", "policy", "gigabytes", "seconds"),
    [
        (QWEN_8B, Policy.Breakable, 0.80, 5.84),
        (QWEN_06B, Policy.Breakable, 0.45, 3.79),
        (QWEN_8B, Policy.Piecewise, 0.80, 18.08),
        (QWEN_06B, Policy.Piecewise, 0.43, 14.75),
    ],
)
def test_the_estimate_for_fifty_sizes_is_near_what_was_measured(
    model: ModelFacts, policy: Policy, gigabytes: float, seconds: float
) -> None:
    """Within a third: one H200, 50 prefill sizes up to 4096 tokens, SGLang 0.5.15, 2026-11-21."""
    cost = phase_cost(PREFILL, policy, prefill_ladder(4096), CUDA, model)
    assert cost.bytes / 1e9 == pytest.approx(gigabytes, rel=0.33)
    assert cost.seconds == pytest.approx(seconds, rel=0.4)


def test_the_estimate_on_a_cpu_is_what_the_demo_took() -> None:
    """22 prefill and 4 decode sizes of SmolLM2 in 42.0 s on two shared cores."""
    plan = resolve(Features(), GraphRequest())
    assert sum(cost.seconds for cost in plan.costs.values()) == pytest.approx(42.0, rel=0.05)


def test_a_pool_holds_one_layer_at_the_largest_size_and_the_logits_of_decode() -> None:
    assert pool_bytes(PREFILL, 100, CUDA, QWEN_8B) == 100 * (4 * 4096 + 3 * 12288) * 2
    assert pool_bytes(PREFILL, 100, replace(CUDA, tensor=5), QWEN_8B) == 100 * (4 * 4096 + 3 * 2458) * 2
    assert pool_bytes(PREFILL, 100, Features(), SMOLLM2) == 100 * (4 * 576 + 3 * 1536) * 4
    decode = pool_bytes(DECODE, 10, CUDA, QWEN_8B)
    assert decode == 10 * ((4 * 4096 + 3 * 12288) * 2 + 151936 * 4)
    verifying = replace(CUDA, speculative=services.SpeculativeMethod.Ngram, speculative_steps=4)
    assert pool_bytes(DECODE, 10, verifying, QWEN_8B) == 5 * decode
    assert pool_bytes(PREFILL, 10, verifying, QWEN_8B) == pool_bytes(PREFILL, 10, CUDA, QWEN_8B)


def test_one_more_size_costs_segments_on_a_gpu_and_rows_on_a_cpu() -> None:
    assert size_cost(PREFILL, Policy.Breakable, 64, CUDA, QWEN_8B) == Cost(37 * 250_000, pytest.approx(36 * 0.0033))
    assert size_cost(PREFILL, Policy.Piecewise, 64, CUDA, QWEN_8B).seconds == pytest.approx(36 * 0.0105)
    assert size_cost(PREFILL, Policy.Breakable, 64, Features(), SMOLLM2) == Cost(
        30 * 100_000, pytest.approx(64 * 0.018)
    )
    assert size_cost(DECODE, Policy.Full, 4, Features(), SMOLLM2).seconds == pytest.approx(4 * 0.018)
    larger = replace(SMOLLM2, layers=60)
    ratio = larger.params / SMOLLM2.params
    assert size_cost(PREFILL, Policy.Breakable, 64, Features(), larger).seconds == pytest.approx(64 * 0.018 * ratio)
    smaller = replace(SMOLLM2, layers=1)
    assert size_cost(PREFILL, Policy.Breakable, 64, Features(), smaller).seconds == pytest.approx(64 * 0.018)


@given(services.features, st.none() | services.models, st.integers(1, 4096))
def test_a_weaker_policy_never_costs_less(features: Features, model: ModelFacts | None, size: int) -> None:
    for phase, order in AUTO_ORDER.items():
        graphs = [policy for policy in (Policy.Full, *order) if policy is not Policy.Disabled]
        costs = [size_cost(phase, policy, size, features, model) for policy in dict.fromkeys(graphs)]
        assert costs == sorted(costs)


@given(services.features, st.none() | services.models, st.sampled_from([PREFILL, DECODE]))
def test_a_longer_ladder_never_costs_less_and_its_parts_add_up(
    features: Features, model: ModelFacts | None, phase: services.Phase
) -> None:
    sizes = prefill_ladder(700)
    costs = ladder_costs(phase, Policy.Breakable, sizes, features, model)
    assert list(costs) == sorted(costs)
    whole = phase_cost(phase, Policy.Breakable, sizes, features, model)
    assert whole.bytes == costs[-1].bytes
    assert whole.seconds == pytest.approx(costs[-1].seconds)
    assert phase_cost(phase, Policy.Disabled, sizes, features, model) == (0, 0.0)
    assert phase_cost(phase, Policy.Breakable, (), features, model) == (0, 0.0)


def test_the_start_budget_covers_loading_and_two_captures() -> None:
    costs = {PREFILL: Cost(0, 10.2), DECODE: Cost(0, 1.0)}
    plain = budget(costs, CompileMode.Nothing, Features(), None)
    assert (plain.capture_seconds, plain.start_seconds) == (23, 120 + 46)
    inductor = budget(costs, CompileMode.Inductor, Features(), None)
    assert (inductor.capture_seconds, inductor.start_seconds) == (38, 120 + 76)
    assert budget(costs, CompileMode.Autotune, Features(), None).capture_seconds == 168
    assert budget({}, CompileMode.Nothing, Features(), None).start_seconds == 122


def test_weights_that_are_not_known_fill_a_gpu_and_each_gpu_reads_its_part() -> None:
    def seconds(gpus: int, model: ModelFacts | None) -> int:
        return budget({}, CompileMode.Nothing, replace(CUDA, gpus=gpus), model).start_seconds - 122

    assert seconds(1, None) == seconds(8, None) == seconds(0, None) == 194
    assert (seconds(0, QWEN_8B), seconds(1, QWEN_8B), seconds(4, QWEN_8B)) == (17, 17, 5)


def test_facts_about_the_model_change_the_estimate() -> None:
    plan = resolve(CUDA, GraphRequest())
    known = refine(plan, Facts(model=QWEN_06B, free_bytes=100 * GIB))
    assert known.costs[PREFILL].bytes < plan.costs[PREFILL].bytes
    assert known.budget.start_seconds < plan.budget.start_seconds
    assert CUDA.device is Device.Cuda
