"""The resolver: what Auto chooses, what an explicit request may override, and how the engine weakens a plan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_policy import (
    BUILT_POLICIES,
    FEATURES,
    RULES,
    AllToAll,
    Backend,
    CompileMode,
    Device,
    Facts,
    FallbackReason,
    Features,
    GraphRequest,
    ModelFacts,
    OnUnsupported,
    Outcome,
    Phase,
    Policy,
    Severity,
    SpeculativeMethod,
    Stage,
    not_built,
    refine,
    resolve,
    shorten,
    uncompiled,
    weaken,
)
from graphpod_policy.resolution.resolve import AUTO_ORDER
from graphpod_policy.rules import padding_refused

PREFILL, DECODE = Phase.Prefill, Phase.Decode

sizes = st.none() | st.sets(st.integers(1, 4096), min_size=1, max_size=8).map(lambda found: tuple(sorted(found)))
features_strategy = st.builds(Features, max_model_len=st.integers(1, 8192), max_batch=st.integers(1, 64))
request_strategy = st.builds(
    GraphRequest,
    prefill=st.sampled_from(Policy),
    decode=st.sampled_from(Policy),
    prefill_sizes=sizes,
    decode_sizes=sizes,
    on_unsupported=st.sampled_from(OnUnsupported),
)


def test_auto_on_a_cpu_plans_breakable_and_full_with_the_recorder():
    plan = resolve(Features(), GraphRequest())
    assert plan.phases[PREFILL].planned is Policy.Breakable
    assert plan.phases[PREFILL].sizes == (4, 8, 12, 16, 20, 24, 28, 32, *range(48, 257, 16))
    assert (plan.phases[DECODE].planned, plan.phases[DECODE].sizes) == (Policy.Full, (1, 2, 4, 8))
    assert plan.backend is Backend.Recorder
    assert {decision.rule for decision in plan.decisions} == {"NoCuda"}
    assert plan.gates == ("PaddingGate",)
    assert plan.prefill_chunk == 256


def test_the_maximum_is_always_on_the_default_ladder():
    plan = resolve(Features(max_model_len=50, max_batch=3), GraphRequest())
    assert plan.phases[PREFILL].sizes[-1] == 150
    assert plan.phases[DECODE].sizes == (1, 2, 3)


def test_disabled_is_planned_as_asked_without_a_decision():
    plan = resolve(Features(), GraphRequest(prefill=Policy.Disabled, decode=Policy.Disabled))
    assert [phase.planned for phase in plan.phases.values()] == [Policy.Disabled, Policy.Disabled]
    assert (plan.decisions, plan.gates) == ((), ())


def test_sizes_that_one_pass_cannot_hold_are_dropped_and_said():
    plan = resolve(Features(max_batch=4), GraphRequest(decode_sizes=(2, 4, 6)))
    assert plan.phases[DECODE].sizes == (2, 4)
    clamp = next(decision for decision in plan.decisions if decision.rule == "LadderClamp")
    assert (clamp.outcome, clamp.because) == (
        Outcome.Adjusted,
        "one decode pass holds at most 4 sequences: dropped 6",
    )


def test_an_empty_ladder_disables_the_phase():
    plan = resolve(Features(max_batch=4), GraphRequest(decode_sizes=(6,)))
    assert plan.phases[DECODE].planned is Policy.Disabled
    assert "LadderEmpty" in {decision.rule for decision in plan.decisions}


def test_an_explicit_request_never_skips_an_unsupported_rule():
    degraded = resolve(Features(), GraphRequest(decode=Policy.Piecewise))
    assert degraded.phases[DECODE].planned is Policy.Full
    assert ("PiecewiseDecode", Outcome.Excluded) in {(d.rule, d.outcome) for d in degraded.decisions}
    refused = resolve(Features(), GraphRequest(decode=Policy.Piecewise, on_unsupported=OnUnsupported.Fail))
    assert refused.refused is not None
    assert refused.refused.outcome is Outcome.Refused


@given(features_strategy, request_strategy)
def test_resolve_is_total_and_plans_nothing_unbuilt_that_was_not_asked_by_name(
    features: Features, request: GraphRequest
):
    plan = resolve(features, request)
    assert plan == resolve(features, request)
    for phase, phase_plan in plan.phases.items():
        assert phase_plan.planned in (*BUILT_POLICIES[phase], request.policy(phase))
        assert bool(phase_plan.sizes) == (phase_plan.planned is not Policy.Disabled)
        assert list(phase_plan.sizes) == sorted(set(phase_plan.sizes))
        changed = request.policy(phase) not in (Policy.Auto, phase_plan.planned)
        assert not changed or any(decision.phase is phase for decision in plan.decisions)


@given(features_strategy, request_strategy)
def test_resolving_a_plan_again_changes_nothing(features: Features, request: GraphRequest):
    plan = resolve(features, request)
    again = resolve(
        Features(max_model_len=features.max_model_len, max_batch=features.max_batch, prefill_chunk=plan.prefill_chunk),
        GraphRequest(
            prefill=plan.phases[PREFILL].planned,
            decode=plan.phases[DECODE].planned,
            prefill_sizes=plan.phases[PREFILL].sizes or None,
            decode_sizes=plan.phases[DECODE].sizes or None,
        ),
    )
    for phase in Phase:
        assert (again.phases[phase].planned, again.phases[phase].sizes) == (
            plan.phases[phase].planned,
            plan.phases[phase].sizes,
        )


def test_a_failed_capture_walks_down_one_step_at_a_time():
    plan = resolve(Features(), GraphRequest())
    first = weaken(plan, DECODE, "CaptureFailed", "decode size 4: boom")
    assert first.phases[DECODE].planned is Policy.Breakable
    second = weaken(first, DECODE, "SelfCheckFailed", "decode size 2 differs")
    assert (second.phases[DECODE].planned, second.phases[DECODE].sizes) == (Policy.Disabled, ())
    assert second.phases[PREFILL] == plan.phases[PREFILL]
    assert [d.rule for d in second.decisions if d.stage is Stage.Engine] == ["CaptureFailed", "SelfCheckFailed"]
    with pytest.raises(ValueError, match="nothing weaker"):
        weaken(second, DECODE, "CaptureFailed", "again")


@pytest.fixture
def without_piecewise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version whose engine does not have Piecewise."""
    monkeypatch.setitem(BUILT_POLICIES, PREFILL, (Policy.Breakable, Policy.Disabled))


@pytest.mark.usefixtures("without_piecewise")
def test_a_policy_that_is_not_built_is_stepped_over_when_degrading():
    plan = weaken(resolve(Features(), GraphRequest()), PREFILL, "CaptureFailed", "boom")
    assert plan.phases[PREFILL].planned is Policy.Disabled


def test_prefill_steps_from_breakable_over_piecewise_to_disabled():
    plan = resolve(Features(), GraphRequest())
    walked = []
    while plan.phases[PREFILL].planned is not Policy.Disabled:
        walked.append(plan.phases[PREFILL].planned)
        plan = weaken(plan, PREFILL, "CaptureFailed", "boom")
    assert walked == [Policy.Breakable, Policy.Piecewise]


def test_what_cannot_be_compiled_changes_no_policy_and_compiling_ends_with_the_last_phase():
    plan = resolve(Features(device=Device.Cuda), GraphRequest(prefill=Policy.Piecewise, compile=CompileMode.Inductor))
    for phases, compile in (((PREFILL,), CompileMode.Inductor), ((PREFILL, DECODE), CompileMode.Nothing)):
        less = uncompiled(plan, phases, "no compiler")
        assert (less.phases, less.compile) == (plan.phases, compile)
        new = less.decisions[len(plan.decisions) :]
        assert [(decision.rule, decision.phase, decision.outcome) for decision in new] == [
            ("CompileFailed", phase, Outcome.Adjusted) for phase in phases
        ]


def test_memory_shortens_a_ladder_and_never_extends_it():
    plan = resolve(Features(), GraphRequest())
    shorter = shorten(plan, DECODE, (1, 2), "4 and 8 did not fit")
    assert shorter.phases[DECODE].sizes == (1, 2)
    assert shorter.decisions[-1].rule == "LadderMemory"
    for wrong in ((), (1, 2, 4, 8), (1, 3)):
        with pytest.raises(ValueError, match="shorter ladder"):
            shorten(plan, DECODE, wrong, "")


def test_a_model_whose_layers_are_not_all_found_runs_eagerly():
    plan = resolve(Features(), GraphRequest())
    known = refine(plan, Facts(attention_layers=30, configured_layers=30))
    assert (known.phases, known.decisions) == (plan.phases, plan.decisions)
    refined = refine(plan, Facts(attention_layers=15, configured_layers=30))
    assert {phase.planned for phase in refined.phases.values()} == {Policy.Disabled}
    told = [decision.because for decision in refined.decisions if decision.rule == "UnknownLayers"]
    assert all("15 attention layers found, 30 configured" in because for because in told)


@pytest.mark.parametrize(
    ("features", "field"),
    [
        (Features(speculative=SpeculativeMethod.DraftModel, speculative_topk=2), "spec.engine.speculative.topk"),
        (Features(speculative=SpeculativeMethod.Ngram, speculative_topk=2), "spec.engine.speculative.topk"),
        (Features(cpu_offload_bytes=1), "spec.engine.cpuOffload"),
        (Features(deterministic=True), "spec.engine.deterministic"),
    ],
)
def test_a_feature_that_is_not_built_is_named_by_its_field(features: Features, field: str):
    missing = not_built(features, GraphRequest())
    assert [row.field for row in missing] == [field]
    assert missing[0].message.startswith(field)


def test_a_policy_that_is_not_built_is_named_by_its_field():
    missing = not_built(Features(), GraphRequest(prefill=Policy.Full))
    assert [row.field for row in missing] == ["spec.graph.prefill"]
    assert "use one of Auto, Breakable, Piecewise, Disabled" in missing[0].message


def test_defaults_ask_for_nothing_that_is_not_built():
    assert not_built(Features(), GraphRequest()) == ()
    assert {row.field.split(".")[0] for row in FEATURES} == {"spec"}


@pytest.mark.parametrize(
    ("real", "padded", "refused"), [(5, 16, False), (64, 128, False), (100, 256, True), (1, 65, False), (1, 66, True)]
)
def test_the_padding_gate_needs_both_the_ratio_and_the_rows(real: int, padded: int, refused: bool):
    assert padding_refused(real, padded) is refused


def test_every_gate_is_a_fallback_reason():
    gates = {rule.id for rule in RULES if rule.severity is Severity.Gate}
    assert gates == set(FallbackReason) - {"ForcedEager", "Disabled", "WarmingUp", "SizeAboveLadder", "NotCaptured"}


def test_every_auto_order_ends_with_disabled():
    assert all(order[-1] is Policy.Disabled for order in AUTO_ORDER.values())


@pytest.mark.usefixtures("without_piecewise")
def test_a_weakened_plan_tells_the_failure_then_what_was_stepped_over():
    plan = resolve(Features(), GraphRequest())
    weaker = weaken(plan, PREFILL, "CaptureFailed", "prefill size 8: boom")
    added = weaker.decisions[len(plan.decisions) :]
    assert [(d.rule, d.phase, d.stage, d.outcome, d.policy) for d in added] == [
        ("CaptureFailed", PREFILL, Stage.Engine, Outcome.Degraded, Policy.Breakable),
        ("NotBuilt", PREFILL, Stage.Engine, Outcome.Excluded, Policy.Piecewise),
    ]
    assert added[0].because == "prefill size 8: boom"
    assert weaker.phases[DECODE] == plan.phases[DECODE]
    decode = weaken(plan, DECODE, "SelfCheckFailed", "decode size 2 differs")
    assert decode.phases[DECODE].sizes == plan.phases[DECODE].sizes
    assert decode.phases[DECODE].requested is Policy.Auto


def test_weakening_steps_over_what_the_features_exclude_even_under_fail():
    request = GraphRequest(prefill=Policy.Breakable, on_unsupported=OnUnsupported.Fail)
    plan = resolve(Features(lora=("one",)), request)
    assert plan.phases[PREFILL].planned is Policy.Breakable
    weaker = weaken(plan, PREFILL, "CaptureFailed", "boom")
    assert (weaker.phases[PREFILL].planned, weaker.refused) == (Policy.Disabled, None)
    assert weaker.decisions[-1].rule == "LoRA"


def test_a_shortened_ladder_tells_why():
    plan = resolve(Features(), GraphRequest())
    shorter = shorten(plan, DECODE, (1, 2), "4 and 8 did not fit")
    added = shorter.decisions[-1]
    assert (added.rule, added.phase, added.stage, added.outcome, added.policy, added.because) == (
        "LadderMemory", DECODE, Stage.Engine, Outcome.Adjusted, Policy.Full, "4 and 8 did not fit",
    )  # fmt: skip
    assert shorter.phases[DECODE].planned is Policy.Full
    assert shorter.costs[DECODE].bytes < plan.costs[DECODE].bytes
    assert shorter.phases[PREFILL] == plan.phases[PREFILL]
    with pytest.raises(
        ValueError, match=r"^a shorter ladder for decode must be a non-empty part of \(1, 2, 4, 8\), not \(\)$"
    ):
        shorten(plan, DECODE, (), "")


def test_nothing_is_weaker_than_disabled():
    plan = resolve(Features(), GraphRequest(decode=Policy.Disabled))
    with pytest.raises(ValueError, match=r"^decode is Disabled already: nothing weaker is left$"):
        weaken(plan, DECODE, "CaptureFailed", "")


def test_nothing_is_compiled_on_a_cpu_and_who_asked_for_it_is_told():
    plan = resolve(Features(), GraphRequest(compile=CompileMode.Inductor))
    assert plan.compile is CompileMode.Nothing
    assert [one.outcome for one in plan.decisions if one.rule == "NoCompiler"] == [Outcome.Adjusted]
    for silent in (CompileMode.Auto, CompileMode.Nothing):
        plan = resolve(Features(), GraphRequest(compile=silent))
        assert plan.compile is CompileMode.Nothing
        assert "NoCompiler" not in {one.rule for one in plan.decisions}


def test_a_time_budget_binds_the_engine_too():
    plan = resolve(Features(), GraphRequest(budget_seconds=100))
    slow = ModelFacts("LlamaForCausalLM", 32, 4096, 14336, 32, 8, 128, 128256)
    refined = refine(plan, Facts(model=slow))
    assert "LadderTime" in {decision.rule for decision in refined.decisions}
    assert refined.phases[PREFILL].sizes == plan.phases[PREFILL].sizes[: len(refined.phases[PREFILL].sizes)]


def test_a_decision_as_plain_strings():
    decision = resolve(Features(), GraphRequest()).decisions[0]
    assert decision.as_dict() == {
        "rule": "NoCuda", "phase": "prefill", "stage": "Spec", "outcome": "Adjusted", "because": decision.because,
        "hint": decision.hint,
    }  # fmt: skip
    assert "CPU recorder" in decision.because
    assert decision.policy is Policy.Breakable


def test_decisions_stand_by_phase_prefill_first():
    plan = resolve(Features(), GraphRequest(prefill_sizes=(4, 9999), decode_sizes=(1, 99)))
    phases = [decision.phase for decision in plan.decisions]
    assert phases == sorted(phases, key=list(Phase).index)


GEMMA = ModelFacts("Gemma3ForConditionalGeneration", 26, 1152, 6912, 4, 1, 256, 262144, multimodal=True)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"lora": ("a",)}, "LoRA"),
        ({"deterministic": True}, "Deterministic"),
        ({"symmetric_memory": True}, "SymmetricMemory"),
        ({"data": 2}, "DataParallelAttention"),
    ],
)
def test_a_policy_that_a_rule_excludes_gives_way_to_what_auto_would_take(changes: dict[str, object], rule: str):
    features = Features(device=Device.Cuda, gpus=1, **changes)  # type: ignore[arg-type]
    plan = resolve(features, GraphRequest(prefill=Policy.Piecewise, prefill_sizes=(16, 64)))
    assert (plan.phases[PREFILL].requested, plan.phases[PREFILL].planned) == (Policy.Piecewise, Policy.Breakable)
    assert plan.phases[PREFILL].sizes == (16, 64)
    excluded = [d for d in plan.decisions if d.outcome is Outcome.Excluded]
    assert {(d.policy, d.phase) for d in excluded} == {(Policy.Piecewise, PREFILL)}
    assert rule in {d.rule for d in excluded}
    assert all("Breakable" in d.hint for d in excluded), "the hint names what runs instead"
    refused = resolve(features, GraphRequest(prefill=Policy.Piecewise, on_unsupported=OnUnsupported.Fail))
    assert refused.refused is not None


def test_a_fact_that_excludes_piecewise_leaves_breakable():
    plan = resolve(Features(device=Device.Cuda, gpus=1), GraphRequest(prefill=Policy.Piecewise))
    assert plan.phases[PREFILL].planned is Policy.Piecewise
    assert refine(plan, Facts(model=GEMMA)).phases[PREFILL].planned is Policy.Breakable


def test_sleep_leaves_every_policy_as_it_is():
    request = GraphRequest(prefill=Policy.Piecewise, decode=Policy.Breakable)
    plan, awake = resolve(Features(sleep=True), request), resolve(Features(), request)
    assert (plan.phases, plan.decisions) == (awake.phases, awake.decisions)


@pytest.mark.parametrize(
    ("phase", "asked", "walked"),
    [
        (PREFILL, Policy.Piecewise, []),
        (PREFILL, Policy.Breakable, [Policy.Piecewise]),
        (DECODE, Policy.Breakable, []),
        (DECODE, Policy.Full, [Policy.Breakable]),
    ],
)
def test_failed_captures_never_climb_the_order_of_auto(phase: Phase, asked: Policy, walked: list[Policy]):
    plan = resolve(Features(), GraphRequest(**{phase.value: asked}))
    seen = []
    while (plan := weaken(plan, phase, "CaptureFailed", "boom")).phases[phase].planned is not Policy.Disabled:
        seen.append(plan.phases[phase].planned)
    assert seen == walked


def test_sizes_of_a_phase_that_runs_eagerly_are_not_dropped_in_silence():
    features = Features(device=Device.Cuda, gpus=8, expert=8, all_to_all=AllToAll.DeepEp, two_batch_overlap=True)
    plan = resolve(features, GraphRequest(prefill_sizes=(64, 512)))
    assert plan.phases[PREFILL].planned is Policy.Disabled
    unused = [d for d in plan.decisions if d.rule == "LadderUnused"]
    assert [(d.phase, d.outcome) for d in unused] == [(PREFILL, Outcome.Adjusted)]
    assert not [d for d in resolve(features, GraphRequest()).decisions if d.rule == "LadderUnused"]


@pytest.mark.parametrize(("method", "gated"), [(SpeculativeMethod.Eagle, False), (SpeculativeMethod.Eagle3, True)])
def test_only_eagle_3_is_gated_by_auxiliary_hidden_states(method: SpeculativeMethod, gated: bool):
    plan = resolve(Features(device=Device.Cuda, gpus=1, speculative=method), GraphRequest())
    assert ("HiddenStateGate" in plan.gates) is gated
