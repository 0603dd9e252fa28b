"""Estimates: near what was measured, never lower for a weaker policy, and the ceilings that follow."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_policy import CompileMode, Device, Facts, Features, GraphRequest, ModelFacts, Policy, refine, resolve
from graphpod_policy.cost.cost import Cost, budget, check_seconds, ladder_costs, phase_cost, pool_bytes, size_cost
from graphpod_policy.cost.selfcheck import checked_rows, comparisons
from graphpod_policy.ladder.ladder import decode_ladder, prefill_ladder
from graphpod_policy.resolution.resolve import AUTO_ORDER
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


def test_the_self_check_costs_the_rows_that_it_runs() -> None:
    """Every size twice, and plain eager near the smallest, the middle and the largest."""
    assert checked_rows(()) == 0
    assert checked_rows((8,)) == 16 + 7 + 8 + 8 + 8 + 9, "replayed with 7 rows and with 8, each with two eager passes"
    sizes = prefill_ladder(256)
    assert checked_rows(sizes) == 6098 == 2 * sum(sizes) + 1554
    assert phase_cost(PREFILL, Policy.Breakable, sizes, Features(), None).check_seconds == pytest.approx(6098 * 0.0085)
    larger = replace(SMOLLM2, layers=60)
    ratio = larger.params / SMOLLM2.params
    whole = phase_cost(PREFILL, Policy.Breakable, sizes, Features(), larger)
    assert whole.check_seconds == pytest.approx(6098 * 0.0085 * ratio)
    assert phase_cost(PREFILL, Policy.Disabled, sizes, Features(), larger).check_seconds == 0


@pytest.mark.parametrize(("model", "seconds"), [(QWEN_8B, 4.8), (QWEN_06B, 1.6)])
def test_the_self_check_on_a_gpu_is_near_what_was_measured(model: ModelFacts, seconds: float) -> None:
    """50 prefill and 8 decode sizes on one H200, 2026-11-21: never less, at most 2.5 times."""
    sizes = (*prefill_ladder(4096)[:50], *decode_ladder(32)[:8])
    found = check_seconds(PREFILL, sizes, CUDA, model)
    assert seconds <= found * 1.01 <= 2.5 * seconds


@given(st.lists(st.integers(1, 600), min_size=1, max_size=40, unique=True).map(lambda sizes: tuple(sorted(sizes))))
def test_the_self_check_replays_every_size_once_with_its_own_code(sizes: tuple[int, ...]) -> None:
    made = list(comparisons(sizes))
    assert [each.size for each in made if each.uncaptured] == list(sizes)
    assert all(1 <= each.count <= each.size for each in made)
    eager = {each.count for each in made if each.eager}
    wanted = {sizes[0] - 1, sizes[0], sizes[0] + 1, sizes[-1] - 1, sizes[-1]}
    assert eager >= {count for count in wanted if 1 <= count <= sizes[-1]}


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
    assert phase_cost(phase, Policy.Disabled, sizes, features, model) == (0, 0.0, 0.0)
    assert phase_cost(phase, Policy.Breakable, (), features, model) == (0, 0.0, 0.0)


def test_the_start_budget_covers_loading_and_two_captures() -> None:
    costs = {PREFILL: Cost(0, 10.2), DECODE: Cost(0, 1.0)}
    plain = budget(costs, CompileMode.Nothing, Features(), None)
    assert (plain.capture_seconds, plain.check_seconds, plain.start_seconds) == (23, 0, 120 + 46)
    checked = budget({**costs, DECODE: Cost(0, 1.0, 7.4)}, CompileMode.Nothing, Features(), None)
    assert (checked.capture_seconds, checked.check_seconds, checked.start_seconds) == (23, 15, 120 + 46 + 15)
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
