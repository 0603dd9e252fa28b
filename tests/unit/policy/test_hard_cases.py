"""The cases that other engines get wrong, one test each."""

from dataclasses import replace

import pytest

from graphpod_policy import (
    Batch,
    CompileMode,
    Device,
    Duty,
    Facts,
    FallbackReason,
    Features,
    GraphRequest,
    KvCacheDtype,
    OnUnsupported,
    Outcome,
    Phase,
    Plan,
    Policy,
    Role,
    SpeculativeMethod,
    refine,
    refusing_gate,
    resolve,
)
from graphpod_policy.rules import GATES, Case, exclusions, padding_refused
from tests.unit.policy.services import CUDA, DECODE, GIB, LLAMA, PREFILL

BREAKABLE = Batch(PREFILL, Policy.Breakable, rows=64, padded=64)
PIECEWISE = Batch(PREFILL, Policy.Piecewise, rows=64, padded=64)


def auto(**changes: object) -> Plan:
    return resolve(replace(CUDA, **changes), GraphRequest())  # type: ignore[arg-type]


def policies(plan: Plan) -> tuple[Policy, Policy]:
    return plan.phases[PREFILL].planned, plan.phases[DECODE].planned


def against(policy: Policy, phase: Phase, **changes: object) -> set[str]:
    features = replace(CUDA, **changes)  # type: ignore[arg-type]
    return {rule.id for rule in exclusions(Case(features, Facts(), phase, policy))} - {"NotBuilt"}


def test_a_host_kv_cache_is_not_weight_offload() -> None:
    plan = auto(host_cache_bytes=GIB)
    assert policies(plan) == (Policy.Breakable, Policy.Full)
    assert Duty.LoadsInBreaks in plan.duties[PREFILL]
    assert Duty.JoinAfterLoad in plan.duties[DECODE]
    assert against(Policy.Piecewise, PREFILL, host_cache_bytes=GIB) == set()
    assert against(Policy.Full, PREFILL, host_cache_bytes=GIB) == {"FullPrefill"}, "waits are in front of a replay"
    assert policies(auto(cpu_offload_bytes=GIB)) == (Policy.Disabled, Policy.Disabled)
    assert policies(auto(host_cache_bytes=GIB, cpu_offload_bytes=GIB)) == (Policy.Disabled, Policy.Disabled)


def test_offloaded_weights_at_staging_addresses_run_graphs_only_when_asked_by_name() -> None:
    staged = replace(CUDA, cpu_offload_bytes=GIB, cpu_offload_staging=True)
    assert policies(resolve(staged, GraphRequest())) == (Policy.Disabled, Policy.Disabled)
    asked = resolve(staged, GraphRequest(prefill=Policy.Breakable, decode=Policy.Full))
    assert policies(asked) == (Policy.Breakable, Policy.Full)
    forced = {(decision.rule, decision.phase) for decision in asked.decisions if decision.outcome is Outcome.Forced}
    assert forced == {("CpuOffload", PREFILL), ("CpuOffload", DECODE)}


@pytest.mark.parametrize("method", SpeculativeMethod)
def test_speculative_decoding_leaves_graphs_on_and_guards_verify_batches(method: SpeculativeMethod) -> None:
    plan = auto(speculative=method)
    assert policies(plan) == (Policy.Breakable, Policy.Full)
    assert against(Policy.Piecewise, PREFILL, speculative=method) == set()
    assert "TargetVerifyGate" in plan.gates
    verifying = replace(BREAKABLE, verify=True)
    assert refusing_gate(plan.gates, verifying) is FallbackReason.TargetVerifyGate
    decoding = Batch(DECODE, Policy.Full, rows=4, padded=4, verify=True)
    assert refusing_gate(plan.gates, decoding) is None


@pytest.mark.parametrize(
    ("method", "duties"),
    [
        (SpeculativeMethod.Ngram, set()),
        (SpeculativeMethod.DraftModel, set()),
        (SpeculativeMethod.Eagle, {Duty.HiddenStatesOut}),
        (SpeculativeMethod.Mtp, {Duty.HiddenStatesOut}),
        (SpeculativeMethod.Eagle3, {Duty.HiddenStatesOut, Duty.AuxiliaryStatesOut}),
    ],
)
def test_graphs_leave_the_hidden_states_that_the_draft_reads(method: SpeculativeMethod, duties: set[Duty]) -> None:
    plan = auto(speculative=method)
    assert set(plan.duties[PREFILL]) == duties
    assert set(plan.duties[DECODE]) == {Duty.VerifyWidth, *duties}


def test_a_batch_that_wants_auxiliary_states_runs_eagerly_when_they_were_not_captured() -> None:
    gates = auto(speculative=SpeculativeMethod.Eagle3).gates
    wanting = replace(BREAKABLE, wants_auxiliary_states=True)
    assert refusing_gate(gates, wanting) is FallbackReason.HiddenStateGate
    assert refusing_gate(gates, replace(wanting, has_auxiliary_states=True)) is None


@pytest.mark.parametrize("host_cache", [None, GIB])
def test_fp8_kv_scales_are_final_before_capture_with_and_without_a_host_cache(host_cache: int | None) -> None:
    plan = auto(kv_cache_dtype=KvCacheDtype.Fp8, host_cache_bytes=host_cache)
    assert policies(plan) == (Policy.Breakable, Policy.Full)
    assert {Duty.FinalScales, Duty.ModelDtypeOutput} <= set(plan.duties[PREFILL])
    assert Duty.FinalScales in plan.duties[DECODE]
    assert Duty.ModelDtypeOutput not in plan.duties[DECODE], "a Full graph has no break"


@pytest.mark.parametrize("dtype", KvCacheDtype)
@pytest.mark.parametrize("host_cache", [None, GIB])
def test_planning_attention_before_every_replay_is_no_rule_of_any_dtype(
    dtype: KvCacheDtype, host_cache: int | None
) -> None:
    """It is an invariant of the engine: no rule may make it depend on a feature."""
    plan = auto(kv_cache_dtype=dtype, host_cache_bytes=host_cache)
    assert not [duty for duty in Duty if "Plan" in duty.value]
    assert policies(plan) == (Policy.Breakable, Policy.Full)


def test_output_logprobs_stay_on_graphs_and_input_logprobs_do_not_under_piecewise() -> None:
    gates = tuple(GATES)
    asking = {"input_logprobs": True}
    assert refusing_gate(gates, replace(PIECEWISE, **asking)) is FallbackReason.InputLogprobsGate
    assert refusing_gate(gates, PIECEWISE) is None
    assert refusing_gate(gates, replace(BREAKABLE, **asking)) is None
    assert "InputLogprobsGate" not in auto().gates


@pytest.mark.parametrize(
    ("rows", "padded", "refused"),
    [
        (5, 16, False),  # 3.2 times, 11 rows more: too little to care
        (64, 128, False),  # twice is not over twice
        (65, 130, False),
        (100, 164, False),
        (1, 65, False),  # 64 rows more are not over 64
        (1, 66, True),
        (100, 201, True),
        (3208, 8192, True),  # the batch that SGLang's rule was written for
    ],
)
def test_padding_is_refused_beyond_twice_the_rows_and_64_rows_more(rows: int, padded: int, refused: bool) -> None:
    assert padding_refused(rows, padded) is refused
    batch = Batch(PREFILL, Policy.Breakable, rows=rows, padded=padded)
    expected = FallbackReason.PaddingGate if refused else None
    assert refusing_gate(auto().gates, batch) is expected
    assert refusing_gate(auto().gates, replace(batch, phase=DECODE, policy=Policy.Full)) is None


def test_pipeline_stages_run_graphs_from_static_buffers() -> None:
    plan = auto(pipeline=2)
    assert policies(plan) == (Policy.Breakable, Policy.Full)
    assert plan.duties == {PREFILL: (Duty.StaticStageBuffers,), DECODE: (Duty.StaticStageBuffers,)}
    assert against(Policy.Piecewise, PREFILL, pipeline=2) == {"PipelineParallel"}
    forced = resolve(replace(CUDA, pipeline=2), GraphRequest(prefill=Policy.Piecewise))
    assert forced.phases[PREFILL].planned is Policy.Piecewise


def test_a_pipeline_stage_that_counts_its_own_layers_is_no_unknown_model() -> None:
    plan = refine(auto(pipeline=2), Facts(attention_layers=18, configured_layers=18))
    assert policies(plan) == (Policy.Breakable, Policy.Full)


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (Role.Both, (Policy.Breakable, Policy.Full)),
        (Role.Prefill, (Policy.Breakable, Policy.Disabled)),
        (Role.Decode, (Policy.Disabled, Policy.Full)),
    ],
)
def test_a_disaggregated_role_keeps_its_own_phase(role: Role, expected: tuple[Policy, Policy]) -> None:
    assert policies(auto(role=role)) == expected


@pytest.mark.parametrize("on_unsupported", OnUnsupported)
def test_an_explicit_choice_never_skips_an_unsupported_rule(on_unsupported: OnUnsupported) -> None:
    request = GraphRequest(prefill=Policy.Breakable, decode=Policy.Full, on_unsupported=on_unsupported)
    plan = resolve(replace(CUDA, cpu_offload_bytes=GIB), request)
    assert policies(plan) == (Policy.Disabled, Policy.Disabled)
    assert (plan.refused is not None) is (on_unsupported is OnUnsupported.Fail)


def test_a_refusal_names_the_rule_and_stops_the_search() -> None:
    plan = resolve(
        replace(CUDA, context=2, two_batch_overlap=True),
        GraphRequest(prefill=Policy.Breakable, on_unsupported=OnUnsupported.Fail),
    )
    refused = [decision for decision in plan.decisions if decision.outcome is Outcome.Refused]
    assert [decision.rule for decision in refused] == ["ContextParallel", "TwoBatchOverlap"]
    assert plan.refused == refused[0]
    assert not [decision for decision in plan.decisions if decision.policy is Policy.Piecewise]


def test_fail_does_not_refuse_what_auto_can_choose() -> None:
    plan = resolve(replace(CUDA, cpu_offload_bytes=GIB), GraphRequest(on_unsupported=OnUnsupported.Fail))
    assert plan.refused is None
    assert policies(plan) == (Policy.Disabled, Policy.Disabled)


def test_a_forced_choice_is_recorded() -> None:
    plan = resolve(CUDA, GraphRequest(prefill=Policy.Full))
    forced = {decision.rule for decision in plan.decisions if decision.outcome is Outcome.Forced}
    assert forced == {"FullPrefill", "NotBuilt"}
    assert plan.phases[PREFILL].planned is Policy.Full


def test_a_fact_that_stands_against_an_asked_policy_refuses_under_fail() -> None:
    request = GraphRequest(prefill=Policy.Breakable, on_unsupported=OnUnsupported.Fail)
    plan = refine(resolve(CUDA, request), Facts(attention_layers=1, configured_layers=2))
    assert plan.refused is not None
    assert (plan.refused.rule, plan.refused.phase) == ("UnknownLayers", PREFILL)


def test_deterministic_mode_fixes_kernels_and_keeps_graphs() -> None:
    deterministic = replace(CUDA, deterministic=True)
    auto = resolve(deterministic, GraphRequest())
    assert auto.compile is CompileMode.Nothing
    assert all("compiled" not in decision.because for decision in auto.decisions), "Auto lost nothing"
    plan = resolve(deterministic, GraphRequest(compile=CompileMode.Autotune))
    assert policies(plan) == (Policy.Breakable, Policy.Full)
    assert plan.compile is CompileMode.Nothing
    assert plan.duties[DECODE] == (Duty.FixedGemm, Duty.NoKvSplit)
    assert [d.rule for d in plan.decisions if d.outcome is Outcome.Adjusted and d.phase is PREFILL] == [
        "Deterministic",
        "Deterministic",
    ]


def test_a_multimodal_model_captures_its_text_body_and_guards_embeddings() -> None:
    facts = Facts(model=replace(LLAMA, architecture="Gemma3ForConditionalGeneration", multimodal=True))
    plan = refine(auto(), facts)
    assert policies(plan) == (Policy.Breakable, Policy.Full)
    assert plan.duties[PREFILL] == (Duty.TextBodyOnly,)
    assert refusing_gate(plan.gates, replace(BREAKABLE, input_embeds=True)) is FallbackReason.InputEmbedsGate
    assert "InputEmbedsGate" not in auto().gates


def test_layers_of_a_hybrid_model_are_breaks() -> None:
    plan = refine(auto(), Facts(model=replace(LLAMA, architecture="NemotronHForCausalLM")))
    assert policies(plan) == (Policy.Breakable, Policy.Full)
    assert plan.duties == {PREFILL: (Duty.LayersAreBreaks,), DECODE: ()}


def test_a_model_that_cannot_be_segmented_loses_its_prefill_graphs_only() -> None:
    plan = refine(auto(), Facts(model=replace(LLAMA, architecture="DeepseekV4ForCausalLM")))
    assert policies(plan) == (Policy.Disabled, Policy.Full)


@pytest.mark.parametrize(
    ("gate", "phase", "changes"),
    [
        (FallbackReason.AdapterGate, PREFILL, {"foreign_adapter": True}),
        (FallbackReason.AdapterGate, DECODE, {"foreign_adapter": True}),
        (FallbackReason.RankVoteGate, DECODE, {"ranks_agree": False}),
    ],
)
def test_a_gate_speaks_in_the_phases_it_is_about(gate: FallbackReason, phase: Phase, changes: dict[str, bool]) -> None:
    plan = auto(lora=("a",), tensor=2) if gate is FallbackReason.AdapterGate else auto(data=2)
    policy = plan.phases[phase].planned
    batch = Batch(phase, policy, rows=4, padded=4)
    assert refusing_gate(plan.gates, batch) is None
    assert refusing_gate(plan.gates, replace(batch, **changes)) is gate


def test_a_full_prefill_graph_has_slots_and_a_piecewise_one_must_not_recompile() -> None:
    full = Batch(PREFILL, Policy.Full, rows=64, padded=64, requests=5, slots=4)
    assert refusing_gate(GATES, full) is FallbackReason.SlotGate
    assert refusing_gate(GATES, replace(full, requests=4)) is None
    assert refusing_gate(GATES, replace(full, slots=None)) is None
    assert refusing_gate(GATES, replace(PIECEWISE, recompiled=True)) is FallbackReason.Recompiled


def test_a_cpu_records_what_a_gpu_captures() -> None:
    cpu, cuda = resolve(Features(), GraphRequest()), resolve(Features(device=Device.Cuda), GraphRequest())
    assert policies(cpu) == policies(cuda)
    assert {decision.rule for decision in cpu.decisions} == {"NoCuda"}
    assert cuda.decisions == ()
