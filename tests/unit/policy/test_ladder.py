"""Ladders: the schedules of the reference, rounding, clamping, and the cut to device and budget."""

import itertools
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_policy import (
    AllToAll,
    CompileMode,
    EngineConfig,
    Facts,
    Features,
    GraphRequest,
    ModelConfig,
    OnUnsupported,
    Outcome,
    Phase,
    Policy,
    SpeculativeMethod,
    refine,
    resolve,
    units,
)
from graphpod_policy.cost.cost import Cost, phase_cost
from graphpod_policy.ladder.ladder import (
    aligned,
    cpu_decode_ladder,
    decode_ladder,
    memory_row,
    prefill_ladder,
    verify_ladder,
)
from graphpod_policy.limits import MOST_SIZES
from graphpod_policy.resolution.resolve import chunk_there
from graphpod_policy.resolution.sizing import Allowance, budget_cut, default_chunk
from graphpod_policy.rules import Case
from tests.unit.policy.services import CUDA, DECODE, GIB, LLAMA, PREFILL


@pytest.mark.parametrize(("most", "count"), [(1024, 38), (2048, 42), (4096, 50), (8192, 58), (16384, 74)])
def test_the_prefill_ladder_has_the_counts_of_the_reference(most: int, count: int) -> None:
    assert len(prefill_ladder(most)) == count


@pytest.mark.parametrize(("most", "plain", "verify"), [(32, 8, 20), (256, 36, 51), (512, 52, 67)])
def test_the_decode_ladders_have_the_counts_of_the_reference(most: int, plain: int, verify: int) -> None:
    assert (len(decode_ladder(most)), len(verify_ladder(most))) == (plain, verify)


def test_the_steps_of_the_schedules() -> None:
    assert prefill_ladder(300) == (4, 8, 12, 16, 20, 24, 28, 32, *range(48, 257, 16), 288, 300)
    assert prefill_ladder(5200)[-4:] == (4096, 4608, 5120, 5200)
    assert prefill_ladder(40_000)[-3:] == (32_768, 36_864, 40_000)
    assert prefill_ladder(1 << 20)[-3:] == (917_504, 983_040, 1_048_576)
    assert decode_ladder(30) == (1, 2, 4, 8, 12, 16, 24, 30)
    assert decode_ladder(600)[-5:] == (496, 512, 544, 576, 600)
    assert verify_ladder(300)[:14] == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20)
    assert verify_ladder(300)[-5:] == (248, 256, 272, 288, 300)
    assert cpu_decode_ladder(8) == (1, 2, 4, 8)
    assert cpu_decode_ladder(100) == (1, 2, 4, 8, 100)


@pytest.mark.parametrize("ladder", [prefill_ladder, decode_ladder, verify_ladder, cpu_decode_ladder])
@pytest.mark.parametrize("most", [1, 2, 3, 7, 255, 4352, 6000])
def test_the_maximum_is_always_included(ladder, most: int) -> None:  # type: ignore[no-untyped-def]
    sizes = ladder(most)
    assert sizes[-1] == most
    assert list(sizes) == sorted(set(sizes))
    assert ladder(0) == ()


@pytest.mark.parametrize("most", [*(1 << power for power in range(14, 21)), 44_032, 44_033, (1 << 20) - 1])
def test_a_longer_chunk_has_a_ladder_that_can_be_written_and_advised_on(most: int) -> None:
    sizes = prefill_ladder(most)
    assert len(sizes) <= MOST_SIZES
    steps = [(low, high) for low, high in itertools.pairwise(sizes) if low >= 4096]
    assert all(high - low <= low // 8 for low, high in steps), "a pass is padded by an eighth at most"


def test_a_maximum_between_two_steps_is_on_the_ladder_of_a_plan() -> None:
    plan = resolve(replace(CUDA, prefill_chunk=6000), GraphRequest())
    assert plan.phases[PREFILL].sizes[-2:] == (5632, 6000)
    assert plan.prefill_chunk == 6000


@pytest.mark.parametrize(
    ("features", "prefill", "decode"),
    [
        (Features(max_model_len=50, max_batch=3), 150, 3),
        (Features(), 256, 8),
        (CUDA, 16384, 64),
        (replace(CUDA, max_model_len=100, max_batch=2), 200, 2),
        (replace(CUDA, max_batch=1000), 16384, 512),
        (replace(CUDA, prefill_chunk=1000), 1000, 64),
        (replace(CUDA, max_model_len=100, max_batch=2, prefill_chunk=1000), 200, 2),
    ],
)
def test_ladders_end_at_context_times_slots_chunk_or_device(features: Features, prefill: int, decode: int) -> None:
    plan = resolve(features, GraphRequest())
    assert (plan.phases[PREFILL].sizes[-1], plan.phases[DECODE].sizes[-1]) == (prefill, decode)


def test_asked_sizes_above_one_pass_are_dropped_and_named() -> None:
    plan = resolve(replace(CUDA, prefill_chunk=100), GraphRequest(prefill_sizes=(50, 101, 300), decode_sizes=(64, 65)))
    assert (plan.phases[PREFILL].sizes, plan.phases[DECODE].sizes) == ((50,), (64,))
    assert [(decision.rule, decision.because) for decision in plan.decisions] == [
        ("LadderClamp", "one prefill pass holds at most 100 tokens: dropped 101, 300"),
        ("LadderClamp", "one decode pass holds at most 64 sequences: dropped 65"),
    ]


def test_the_largest_asked_size_is_the_chunk() -> None:
    assert resolve(CUDA, GraphRequest(prefill_sizes=(64, 512))).prefill_chunk == 512


def test_a_ladder_without_sizes_is_disabled_or_refused() -> None:
    request = GraphRequest(decode=Policy.Full, decode_sizes=(65,))
    degraded = resolve(CUDA, request)
    assert degraded.phases[DECODE].planned is Policy.Disabled
    assert [(d.rule, d.outcome) for d in degraded.decisions] == [
        ("LadderClamp", Outcome.Adjusted),
        ("LadderEmpty", Outcome.Excluded),
    ]
    refused = resolve(CUDA, replace(request, on_unsupported=OnUnsupported.Fail)).refused
    assert refused is not None
    assert (refused.rule, refused.outcome) == ("LadderEmpty", Outcome.Refused)
    assert resolve(CUDA, replace(request, decode=Policy.Auto, on_unsupported=OnUnsupported.Fail)).refused is None


# rounding


@given(
    st.sets(st.integers(1, 500), min_size=1).map(lambda found: tuple(sorted(found))),
    st.integers(1, 16),
    st.integers(1, 500),
)
def test_rounded_sizes_are_multiples_within_the_maximum(sizes: tuple[int, ...], multiple: int, most: int) -> None:
    rounded = aligned(sizes, multiple, most)
    assert all(size % multiple == 0 and 0 < size <= most for size in rounded)
    assert list(rounded) == sorted(set(rounded))
    assert len(rounded) <= len(sizes)
    top = most // multiple * multiple
    for size in sizes:
        assert min(-(-size // multiple) * multiple, top) in (*rounded, 0)
    assert aligned(rounded, multiple, most) == rounded


def test_expert_exchange_rounds_prefill_to_eights() -> None:
    features = replace(CUDA, expert=8, all_to_all=AllToAll.DeepEp)
    plan = resolve(features, GraphRequest(prefill_sizes=(4, 8, 13, 100), decode_sizes=(1, 3)))
    assert plan.phases[PREFILL].sizes == (8, 16, 96)
    assert plan.phases[DECODE].sizes == (1, 3)
    (decision,) = plan.decisions
    assert (decision.rule, decision.outcome) == ("ExpertParallel", Outcome.Adjusted)
    assert decision.because.endswith("sizes were rounded to multiples of 8")
    assert resolve(features, GraphRequest(prefill_sizes=(8, 96))).decisions == ()


@pytest.mark.parametrize("exchange", [AllToAll.Mooncake])
def test_an_exchange_without_a_break_has_no_prefill_graphs(exchange: AllToAll) -> None:
    plan = resolve(replace(CUDA, expert=8, all_to_all=exchange), GraphRequest())
    assert plan.phases[PREFILL].planned is Policy.Disabled
    assert "parallelism.allToAll is Mooncake" in plan.decisions[0].because


@pytest.mark.parametrize(
    ("tensor", "data", "method", "steps", "multiple"),
    [
        (4, 2, None, 3, 2),  # two tensor ranks for each attention rank
        (8, 2, SpeculativeMethod.Ngram, 3, 1),  # 4 ranks, 4 tokens a sequence
        (8, 2, SpeculativeMethod.Ngram, 1, 2),  # 4 ranks, 2 tokens
        (8, 2, SpeculativeMethod.Ngram, 2, 4),  # 4 ranks, 3 tokens
        (8, 1, SpeculativeMethod.Ngram, 2, 1),  # no data-parallel attention
        (2, 4, None, 3, 1),
    ],
)
def test_tokens_of_a_decode_pass_divide_over_the_ranks_of_attention(
    tensor: int, data: int, method: SpeculativeMethod | None, steps: int, multiple: int
) -> None:
    features = replace(CUDA, tensor=tensor, data=data, speculative=method, speculative_steps=steps)
    sizes = resolve(features, GraphRequest(decode_sizes=(1, 2, 3, 5, 64))).phases[DECODE].sizes
    assert sizes == aligned((1, 2, 3, 5, 64), multiple, 64)


def test_two_batch_overlap_wants_even_batches() -> None:
    plan = resolve(replace(CUDA, two_batch_overlap=True), GraphRequest(decode_sizes=(1, 2, 7)))
    assert plan.phases[DECODE].sizes == (2, 8)
    both = replace(CUDA, two_batch_overlap=True, tensor=6, data=2)
    assert resolve(both, GraphRequest(decode_sizes=(1, 7))).phases[DECODE].sizes == (6, 12)


def test_speculative_decoding_has_the_finer_ladder_with_sequences_of_several_tokens() -> None:
    features = replace(CUDA, speculative=SpeculativeMethod.Eagle, speculative_steps=3, speculative_topk=2)
    assert features.verify_width == 7
    assert resolve(features, GraphRequest()).phases[DECODE].sizes == verify_ladder(64)
    assert CUDA.verify_width == 1


# device


@pytest.mark.parametrize(
    ("gib", "prefill", "decode", "split"),
    [
        (16, 2048, 8, 8), (24, 2048, 24, 80), (48, 4096, 32, 160), (80, 8192, 256, 512),
        (141, 8192, 256, 512), (180, 16384, 512, 512),
    ],
)  # fmt: skip
def test_a_known_gpu_ends_default_ladders_by_the_memory_table(gib: int, prefill: int, decode: int, split: int) -> None:
    row = memory_row(gib * GIB)
    assert (row.prefill, row.decode, row.decode_split) == (prefill, decode, split)
    for tensor, most in ((1, decode), (2, decode), (4, split)):
        plan = resolve(replace(CUDA, max_model_len=None, max_batch=600, tensor=tensor), GraphRequest())
        there = refine(plan, Facts(gpu_memory_bytes=gib * GIB))
        assert there.phases[PREFILL].sizes[-1] == prefill
        assert there.phases[DECODE].sizes[-1] == most
        assert set(there.phases[DECODE].sizes) <= set(plan.phases[DECODE].sizes)


def test_the_table_of_an_unknown_gpu_is_its_largest_row() -> None:
    assert memory_row(None) == memory_row(1000 * GIB)
    assert memory_row(20 * GIB - 1).decode == 8
    assert memory_row(20 * GIB).decode == 24


def test_a_users_own_ladder_is_left_alone_by_the_memory_table() -> None:
    plan = resolve(CUDA, GraphRequest(prefill_sizes=(100, 9000), decode_sizes=(3, 60)))
    there = refine(plan, Facts(gpu_memory_bytes=16 * GIB))
    assert there.phases == plan.phases
    assert there.decisions == plan.decisions


def test_a_default_ladder_that_a_rule_rounded_is_cut_to_the_gpu_all_the_same() -> None:
    exchange = replace(CUDA, expert=8, all_to_all=AllToAll.DeepEp)
    there = refine(resolve(exchange, GraphRequest()), Facts(gpu_memory_bytes=24 * GIB))
    assert there.phases[PREFILL].sizes[0] == 8
    assert there.phases[PREFILL].sizes[-1] == 2048


def test_latent_attention_ends_the_default_prefill_ladder_at_2048() -> None:
    latent = Facts(model=replace(LLAMA, architecture="DeepseekV3ForCausalLM"), gpu_memory_bytes=80 * GIB)
    there = refine(resolve(CUDA, GraphRequest()), latent)
    assert there.phases[PREFILL].sizes[-1] == 2048
    told = [decision for decision in there.decisions if decision.rule == "LadderDevice"]
    assert [(d.phase, d.outcome) for d in told] == [(PREFILL, Outcome.Adjusted)]
    assert told[0].because == "the default ladder ends lower with latent attention: at most 2048 tokens"
    small = replace(latent, gpu_memory_bytes=16 * GIB)
    assert refine(resolve(CUDA, GraphRequest()), small).phases[PREFILL].sizes[-1] == 2048


@pytest.mark.parametrize(("context", "last"), [(512, 2048), (2048, 2048), (4096, 4096), (5000, 5120), (9000, 8192)])
def test_a_default_prefill_ladder_ends_where_one_pass_reads_the_longest_prompt(context: int, last: int) -> None:
    short = replace(CUDA, max_model_len=context, max_batch=64)
    facts = Facts(gpu_memory_bytes=80 * GIB)
    plan = resolve(short, GraphRequest())
    there = refine(plan, facts)
    assert there.phases[PREFILL].sizes[-1] == chunk_there(plan, facts) == last
    engine = EngineConfig.of(short, GraphRequest(), plan, model=ModelConfig("m", "/m"), dtype="bfloat16")
    again = resolve(engine.feature_set(), engine.planned_request())
    assert refine(again, facts).phases[PREFILL].sizes == there.phases[PREFILL].sizes, "what a pod makes of engine.json"
    assert chunk_there(again, facts) == last
    own = replace(short, prefill_chunk=8192)
    assert refine(resolve(own, GraphRequest()), facts).phases[PREFILL].sizes[-1] == 8192


@pytest.mark.parametrize(
    ("gibibytes", "context", "why"),
    [(24, 9000, "on a GPU of this memory"), (80, 512, "with contexts this short")],
)
def test_a_shortened_default_ladder_says_which_of_its_ends_it_was(gibibytes: int, context: int, why: str) -> None:
    plan = resolve(replace(CUDA, max_model_len=context, max_batch=64), GraphRequest())
    there = refine(plan, Facts(gpu_memory_bytes=gibibytes * GIB))
    (told,) = (one for one in there.decisions if one.rule == "LadderDevice" and one.phase is PREFILL)
    assert told.because == f"the default ladder ends lower {why}: at most 2048 tokens"


@pytest.mark.parametrize("budget", [{"budget_bytes": GIB}, {"budget_seconds": 7, "compile": CompileMode.Nothing}])
def test_so_does_one_that_a_budget_has_cut(budget: dict[str, Any]) -> None:
    short, facts = replace(CUDA, max_model_len=512, max_batch=64), Facts(gpu_memory_bytes=80 * GIB)
    request = GraphRequest(**budget)
    plan = resolve(short, request)
    assert 2048 < plan.prefill_chunk < default_chunk(short)
    engine = EngineConfig.of(short, request, plan, model=ModelConfig("m", "/m"), dtype="bfloat16")
    again = EngineConfig.parse(engine.canonical()).resolved()
    for one in (plan, again):
        assert refine(one, facts).phases[PREFILL].sizes[-1] == chunk_there(one, facts) == 2048
    own = replace(short, prefill_chunk=plan.prefill_chunk)
    engine = EngineConfig.of(own, request, resolve(own, request), model=ModelConfig("m", "/m"), dtype="bfloat16")
    for one in (resolve(own, request), engine.resolved()):
        assert refine(one, facts).phases[PREFILL].sizes[-1] == chunk_there(one, facts) == plan.prefill_chunk
    assert b"prefillCut" not in engine.canonical()


def test_a_cpu_has_no_row_in_the_memory_table() -> None:
    plan = resolve(Features(max_batch=64), GraphRequest())
    assert refine(plan, Facts(gpu_memory_bytes=GIB)).phases == plan.phases


# budget


def test_a_memory_budget_drops_the_largest_sizes() -> None:
    whole = resolve(CUDA, GraphRequest())
    plan = resolve(CUDA, GraphRequest(budget_bytes=GIB))
    assert 0 < len(plan.phases[PREFILL].sizes) < len(whole.phases[PREFILL].sizes)
    for phase in Phase:
        kept, sizes = plan.phases[phase].sizes, whole.phases[phase].sizes
        assert kept == sizes[: len(kept)]
    assert sum(cost.bytes for cost in plan.costs.values()) <= GIB
    (decision,) = plan.decisions
    assert (decision.rule, decision.phase, decision.outcome) == ("LadderMemory", PREFILL, Outcome.Adjusted)
    kept = plan.phases[PREFILL].sizes
    assert decision.because.startswith("prefill captures need about ")
    assert decision.because.endswith(f"kept {len(kept)} of 74 sizes, up to {kept[-1]} tokens")
    assert plan.prefill_chunk == kept[-1]


def test_a_time_budget_drops_the_largest_sizes() -> None:
    plan = resolve(CUDA, GraphRequest(budget_seconds=5, compile=CompileMode.Nothing))
    assert sum(cost.seconds for cost in plan.costs.values()) <= 5
    assert {decision.rule for decision in plan.decisions} == {"LadderTime"}
    assert "5 s are allowed" not in plan.decisions[0].because, "decode has its part of the five seconds"
    compiled = resolve(CUDA, GraphRequest(budget_seconds=20, compile=CompileMode.Inductor))
    assert compiled.phases == plan.phases, "compiling takes 15 s of the time first"


def test_auto_compiles_nothing_where_captures_need_the_time_and_says_so() -> None:
    plan = resolve(CUDA, GraphRequest(budget_seconds=20))
    whole = resolve(CUDA, GraphRequest())
    assert (plan.phases, plan.compile) == (whole.phases, CompileMode.Nothing)
    assert [(one.rule, one.outcome) for one in plan.decisions] == [("CompileTime", Outcome.Adjusted)]
    assert (whole.compile, whole.decisions) == (CompileMode.Inductor, ())
    assert resolve(CUDA, GraphRequest(budget_seconds=60)).compile is CompileMode.Inductor


def test_a_budget_too_small_for_any_size_disables_the_phase() -> None:
    plan = resolve(CUDA, GraphRequest(budget_bytes=1))
    assert {row.planned for row in plan.phases.values()} == {Policy.Disabled}
    assert [decision.rule for decision in plan.decisions] == ["LadderMemory", "LadderEmpty"] * 2
    assert "kept none" in plan.decisions[0].because


def test_free_memory_and_budget_both_bind_the_engine() -> None:
    plan = resolve(replace(CUDA, max_model_len=None), GraphRequest(budget_bytes=2 * GIB))
    tight = refine(plan, Facts(free_bytes=GIB // 2))
    assert sum(cost.bytes for cost in tight.costs.values()) <= GIB // 2
    assert refine(plan, Facts(free_bytes=100 * GIB)).phases == plan.phases


def test_decode_has_at_most_half_and_prefill_what_decode_leaves() -> None:
    allowance = Allowance(100, 10, Cost(30, 8.0))
    assert allowance.share(DECODE) == (50, 5)
    assert allowance.share(PREFILL) == (70, 5)
    unlimited = Allowance.of(None, None, CompileMode.Autotune, Cost(30, 8.0))
    assert unlimited.share(DECODE) == unlimited.share(PREFILL) == (inf, inf)
    assert Allowance.of(7, 100, CompileMode.Inductor, Cost(0, 0.0)).share(PREFILL) == (7, 85)
    assert Allowance.of(7, 10, CompileMode.Inductor, Cost(0, 0.0)).share(PREFILL) == (7, 0)


def test_a_cut_says_what_was_needed_and_what_is_allowed() -> None:
    model = replace(LLAMA, layers=3)  # 1 MB and 0.0099 s for each size
    plan = resolve(CUDA, GraphRequest(prefill_sizes=(64, 128, 256), decode_sizes=(1,)))
    shape = (4 * 4096 + 3 * 14336) * 2
    for less, kept in ((0, 2), (1, 1)):
        free = phase_cost(DECODE, Policy.Full, (1,), CUDA, model).bytes + 2_000_000 + 128 * shape - less
        there = refine(plan, Facts(model=model, free_bytes=free))
        assert there.phases[PREFILL].sizes == (64, 128)[:kept], "exactly what fits is kept"
    there = refine(plan, Facts(model=model, free_bytes=free + 1))
    needed, allowed = units.size(3_000_000 + 256 * shape), units.size(2_000_000 + 128 * shape)
    assert [decision.because for decision in there.decisions if decision.rule == "LadderMemory"] == [
        f"prefill captures need about {needed}, {allowed} are allowed: kept 2 of 3 sizes, up to 128 tokens"
    ]


def test_a_cut_in_time_says_seconds() -> None:
    features = replace(CUDA, max_batch=1)
    plan = resolve(features, GraphRequest(decode=Policy.Disabled, budget_seconds=1, compile=CompileMode.Nothing))
    kept = plan.phases[PREFILL].sizes
    assert len(kept) == 8, "0.1188 s for each size"
    assert [decision.because for decision in plan.decisions] == [
        f"prefill captures need about 7 s, 1 s are allowed: kept 8 of 58 sizes, up to {kept[-1]} tokens"
    ]


def test_nothing_kept_is_said_so() -> None:
    plan = resolve(CUDA, GraphRequest(budget_bytes=1, decode=Policy.Disabled))
    assert plan.decisions[0].because.endswith(", 1 bytes are allowed: kept none")


def test_exactly_the_time_that_is_allowed_is_enough() -> None:
    plan = resolve(Features(), GraphRequest(decode=Policy.Disabled, prefill_sizes=(250, 256), budget_seconds=9))
    assert plan.phases[PREFILL].sizes == (250,)
    exact = resolve(Features(), GraphRequest(decode=Policy.Disabled, prefill_sizes=(125,), budget_seconds=3))
    assert exact.phases[PREFILL].sizes == (125,)
    case = Case(Features(), Facts(), PREFILL, Policy.Breakable)
    cost = phase_cost(PREFILL, Policy.Breakable, (125,), Features(), None)
    assert budget_cut((125,), case, Allowance(cost.bytes, cost.seconds, Cost(0, 0.0))) == ((125,), ())
    assert budget_cut((125,), case, Allowance(cost.bytes - 1, cost.seconds, Cost(0, 0.0)))[0] == ()
    assert budget_cut((125,), case, Allowance(cost.bytes, cost.seconds * 0.99, Cost(0, 0.0)))[0] == ()


def test_prefill_has_at_least_half() -> None:
    allowance = Allowance(100, 10, Cost(90, 1.0))
    assert allowance.share(PREFILL) == (50, 9)


def test_an_engine_without_room_for_any_size_runs_eagerly_or_ends_under_fail() -> None:
    for asked, on_unsupported, refused in (
        (Policy.Full, OnUnsupported.Fail, True),
        (Policy.Full, OnUnsupported.Degrade, False),
        (Policy.Auto, OnUnsupported.Fail, False),
    ):
        request = GraphRequest(decode=asked, on_unsupported=on_unsupported)
        there = refine(resolve(CUDA, request), Facts(free_bytes=0))
        assert {row.planned for row in there.phases.values()} == {Policy.Disabled}
        assert {row.sizes for row in there.phases.values()} == {()}
        assert (there.refused is not None) is refused
        assert "LadderEmpty" in {decision.rule for decision in there.decisions if decision.phase is DECODE}
