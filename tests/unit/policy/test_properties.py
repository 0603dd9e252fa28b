"""What holds for every service, request and fact."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from graphpod_policy import (
    Backend,
    CompileMode,
    Decision,
    Facts,
    Features,
    GraphRequest,
    OnUnsupported,
    Outcome,
    Phase,
    Plan,
    Policy,
    Severity,
    Stage,
    limits,
    refine,
    resolve,
    weaken,
)
from graphpod_policy.resolution.resolve import AUTO_ORDER, candidates
from graphpod_policy.rules import BY_NAME, RULES, Case, exclusions, speaking
from tests.unit.policy import services
from tests.unit.policy.services import at_most

LADDER_RULES = {"LadderClamp", "LadderMemory", "LadderTime", "LadderDevice"}
ALIGNING = {rule.id for rule in RULES if rule.multiple is not None}


def answer(plan: Plan) -> tuple[object, ...]:
    """What a plan makes an engine do."""
    planned = {phase: (row.planned, row.sizes) for phase, row in plan.phases.items()}
    return (planned, plan.backend, plan.compile, plan.prefill_chunk, plan.duties, plan.gates, plan.costs, plan.budget)


@given(services.features, services.requests)
def test_every_service_has_a_plan_and_always_the_same(features: Features, request: GraphRequest) -> None:
    plan = resolve(features, request)
    assert plan == resolve(features, request)
    for phase, row in plan.phases.items():
        assert row.requested is request.policy(phase)
        assert row.planned is not Policy.Auto
        assert bool(row.sizes) == (row.planned is not Policy.Disabled)
        assert list(row.sizes) == sorted(set(row.sizes))
        most = limits.batch(features) * (limits.context(features) if phase is Phase.Prefill else 1)
        assert all(1 <= size <= most for size in row.sizes)
    assert plan.compile is not CompileMode.Auto
    assert 1 <= plan.prefill_chunk <= limits.context(features) * limits.batch(features)
    assert plan.budget.start_seconds > 2 * plan.budget.capture_seconds > 0
    assert plan.refused is None or plan.refused in plan.decisions


def as_request(plan: Plan) -> GraphRequest:
    """The plan as an explicit request."""
    prefill, decode = plan.phases[Phase.Prefill], plan.phases[Phase.Decode]
    return replace(
        plan.request,
        prefill=prefill.planned,
        decode=decode.planned,
        prefill_sizes=prefill.sizes or plan.request.prefill_sizes,
        decode_sizes=decode.sizes or plan.request.decode_sizes,
        compile=plan.compile,
    )


@given(services.features, services.requests)
def test_resolving_a_plan_as_a_request_gives_the_plan(features: Features, request: GraphRequest) -> None:
    plan = resolve(features, request)
    again = resolve(features, as_request(plan))
    assert answer(again) == answer(plan)
    assert answer(resolve(features, as_request(again))) == answer(plan)


@given(services.features, services.requests, services.facts)
def test_facts_never_make_a_plan_stronger(features: Features, request: GraphRequest, facts: Facts) -> None:
    plan = resolve(features, request)
    refined = refine(plan, facts)
    assert at_most(refined, plan)
    assert answer(refine(refined, facts)) == answer(refined)


@given(services.features, services.requests, services.facts, st.data())
def test_weaker_facts_never_give_a_stronger_plan(
    features: Features, request: GraphRequest, facts: Facts, data: st.DataObject
) -> None:
    """Weaker: less memory, free or in all, or attention layers that do not add up."""
    weaker = data.draw(st.sampled_from(_weaker(facts, data)))
    plan = resolve(features, request)
    assert at_most(refine(plan, weaker), refine(plan, facts))


def _weaker(facts: Facts, data: st.DataObject) -> list[Facts]:
    free = facts.free_bytes if facts.free_bytes is not None else 8 * services.GIB
    total = facts.gpu_memory_bytes or 400 * services.GIB
    return [
        facts,
        replace(facts, free_bytes=data.draw(st.integers(0, free))),
        replace(facts, gpu_memory_bytes=data.draw(st.integers(1, total))),
        replace(facts, attention_layers=7, configured_layers=8),
        replace(facts, reads_whole_tables=True),
    ]


@given(services.features, services.requests, st.integers(1, 1 << 32), st.integers(1, 1 << 32))
def test_a_smaller_budget_never_gives_a_longer_ladder(
    features: Features, request: GraphRequest, one: int, other: int
) -> None:
    small, large = sorted((one, other))
    for given_budget in ("budget_bytes", "budget_seconds"):
        less = resolve(features, replace(request, **{given_budget: small}))
        more = resolve(features, replace(request, **{given_budget: large}))
        for phase in Phase:
            assert set(less.phases[phase].sizes) <= set(more.phases[phase].sizes)


@given(services.features, services.requests)
def test_every_difference_between_request_and_plan_has_a_decision(features: Features, request: GraphRequest) -> None:
    plan = resolve(features, request)
    for phase, row in plan.phases.items():
        told = [decision for decision in plan.decisions if decision.phase is phase]
        adjusting = {decision.rule for decision in told if decision.outcome is Outcome.Adjusted}
        wanted = AUTO_ORDER[phase][0] if row.requested is Policy.Auto else row.requested
        if row.planned is not wanted:
            assert any(decision.outcome in (Outcome.Excluded, Outcome.Refused) for decision in told)
            assert {decision.policy for decision in told} >= {wanted}
        asked = request.sizes(phase)
        if row.sizes and asked is not None and row.sizes != asked:
            assert adjusting & (LADDER_RULES | ALIGNING)
        for duty in plan.duties[phase]:
            assert adjusting & {rule.id for rule in RULES if rule.duty is duty}
        assert plan.backend is Backend.CudaGraph or not row.sizes or "NoCuda" in adjusting
    if request.compile not in (CompileMode.Auto, plan.compile):
        assert any(
            rule.compile is plan.compile and decision.rule == rule.id
            for rule in RULES
            for decision in plan.decisions
            if decision.outcome is Outcome.Adjusted
        )


@given(services.features, services.requests)
def test_a_decision_is_kept_only_for_what_a_rule_changed(features: Features, request: GraphRequest) -> None:
    """Excluded: a candidate before the chosen one, by a row that speaks against it. Forced: the asked policy runs in
    spite of rows that are not Unsupported. Refused: Fail. Adjusted: a size, a duty, the compile mode or the backend.
    """
    plan = resolve(features, request)
    assert len(set(plan.decisions)) == len(plan.decisions)
    for decision in plan.decisions:
        assert decision.stage is Stage.Spec
        _kept_rightly(decision, plan)


def _kept_rightly(decision: Decision, plan: Plan) -> None:
    assert decision.policy is not None
    phase, row = decision.phase, plan.phases[decision.phase]
    case = Case(plan.features, plan.facts, phase, decision.policy)
    against = {rule.id: rule for rule in exclusions(case)}
    match decision.outcome:
        case Outcome.Excluded if decision.rule in against:
            order = candidates(phase, row.requested)
            assert order.index(decision.policy) < order.index(row.planned)
        case Outcome.Excluded:
            assert decision.rule == "LadderEmpty"
            assert row.planned is Policy.Disabled
        case Outcome.Forced:
            assert decision.policy is row.requested
            assert {rule.severity for rule in against.values()} == {Severity.Unproven}
            assert decision.rule in against
        case Outcome.Refused:
            assert plan.request.on_unsupported is OnUnsupported.Fail
            assert decision.policy is row.requested
            assert decision.rule == "LadderEmpty" or against[decision.rule].severity is Severity.Unsupported
        case Outcome.Adjusted:
            speaks = [rule for rule in speaking(case, Severity.Adjust) if rule.id == decision.rule]
            changed = decision.rule in BY_NAME or any(
                rule.duty in plan.duties[phase]
                or rule.backend is plan.backend
                or rule.compile is plan.compile
                or rule.multiple is not None
                for rule in speaks
            )
            assert changed
        case _:
            raise AssertionError(f"{decision.outcome} is not an outcome of the first stage")


@given(services.features, services.requests)
def test_what_excludes_the_asked_policy_is_never_skipped(features: Features, request: GraphRequest) -> None:
    plan = resolve(features, request)
    for phase, row in plan.phases.items():
        if row.planned is not Policy.Disabled:
            against = exclusions(Case(features, plan.facts, phase, row.planned))
            assert Severity.Unsupported not in {rule.severity for rule in against}
            forced = {decision.rule for decision in plan.decisions if decision.outcome is Outcome.Forced}
            assert {rule.id for rule in against} <= forced


@given(services.features, services.requests, services.facts, st.sampled_from(Phase))
def test_failing_captures_walk_down_to_disabled(
    features: Features, request: GraphRequest, facts: Facts, phase: Phase
) -> None:
    plan = refine(resolve(features, request), facts)
    for _ in range(4):
        if plan.phases[phase].planned is Policy.Disabled:
            break
        weaker = weaken(plan, phase, "CaptureFailed", "size 4: boom")
        assert at_most(weaker, plan)
        assert weaker.phases[phase].planned is not plan.phases[phase].planned
        assert weaker.decisions[: len(plan.decisions)] == plan.decisions
        plan = weaker
    assert plan.phases[phase].planned is Policy.Disabled
