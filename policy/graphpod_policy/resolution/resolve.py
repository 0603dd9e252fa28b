"""The resolver: features and a request in, a plan with its decisions out. Total, deterministic, no I/O.

Two callers share it. The operator resolves what the spec says; the engine starts from that plan and can only
weaken it, by `refine` with facts, by `shorten` when memory runs out, by `weaken` when a capture fails, by `uncompiled`
when compiling does.
"""

from dataclasses import replace

from graphpod_policy.cost.cost import NOTHING, Cost, budget, phase_cost
from graphpod_policy.enums import Backend, CompileMode, Device, Outcome, Phase, Policy, Severity, Stage
from graphpod_policy.facts import NOTHING_KNOWN, Facts
from graphpod_policy.features import Features, GraphRequest
from graphpod_policy.ladder.ladder import Ladder
from graphpod_policy.plan import Decision, PhasePlan, Plan
from graphpod_policy.resolution.search import Search
from graphpod_policy.resolution.sizing import (
    Allowance,
    asked_ladder,
    budget_cut,
    default_chunk,
    device_cut,
    pass_cut,
    prefill_chunk,
)
from graphpod_policy.rules import BY_NAME, GATES, Case, speaking

RESOLVER_REVISION = "2026-11-27.4"
"""Changes whenever the table or the search may give another plan for the same input."""

AUTO_ORDER: dict[Phase, tuple[Policy, ...]] = {
    Phase.Prefill: (Policy.Breakable, Policy.Piecewise, Policy.Disabled),
    Phase.Decode: (Policy.Full, Policy.Breakable, Policy.Disabled),
}
"""Strongest first. A policy requested explicitly goes before all of them: where a rule excludes it, Auto chooses."""

AUTO_COMPILE = CompileMode.Inductor
"""Where no rule is against it. On one H200, 8 billion weights in bf16, decode is 13 to 19 % faster by it and prefill 12
to 20 % (docs/contributing/bench-graphs.md), for 15 s of a start that finds nothing compiled.
"""

PHASES = (Phase.Decode, Phase.Prefill)
"""Decode first: what its ladder takes of a budget is not prefill's."""


def resolve(features: Features, request: GraphRequest) -> Plan:
    """The plan for a service. Never raises; `plan.refused` says when `onUnsupported: Fail` ends the search."""
    plan = _resolved(features, request, request.compile)
    if request.compile is CompileMode.Auto and plan.compile is not CompileMode.Nothing and _is_short_of_time(plan):
        return _resolved(features, request, CompileMode.Nothing)
    return plan


def _resolved(features: Features, request: GraphRequest, compile: CompileMode) -> Plan:
    """The plan with layers compiled as `compile` says, which is less than the request when captures need the time."""
    search = Search(features, NOTHING_KNOWN, request.on_unsupported, Stage.Spec)
    chosen = {
        phase: search.choose(phase, request.policy(phase), candidates(phase, request.policy(phase))) for phase in Phase
    }
    cases = [search.case(*item) for item in chosen.items()]
    if compile is not request.compile:
        search.decide(BY_NAME["CompileTime"], cases[0], Outcome.Adjusted)
    compile = search.compile(compile, AUTO_COMPILE, cases)
    chunk = prefill_chunk(features, request)
    phases: dict[Phase, PhasePlan] = {}
    reserved = NOTHING
    for phase in PHASES:
        case = search.case(phase, chosen[phase])
        sizes: Ladder = ()
        if case.policy is not Policy.Disabled:
            for rule in speaking(case, Severity.Adjust):
                if rule.backend is not None:
                    search.decide(rule, case, Outcome.Adjusted)
            sizes, changes = asked_ladder(case, request.sizes(phase), chunk)
            search.resize(case, changes)
            allowance = Allowance.of(request.budget_bytes, request.budget_seconds, compile, reserved)
            sizes, changes = budget_cut(sizes, case, allowance)
            search.resize(case, changes)
            if not sizes:
                search.empty(case, request.policy(phase))
        elif request.sizes(phase) and search.refused is None:
            search.decide(BY_NAME["LadderUnused"], case, Outcome.Adjusted)
        phases[phase] = PhasePlan(request.policy(phase), case.policy if sizes else Policy.Disabled, sizes)
        reserved = _cost(phase, phases[phase], features, NOTHING_KNOWN)
    top = phases[Phase.Prefill].sizes[-1:]
    plan = Plan(
        features=features,
        request=request,
        facts=NOTHING_KNOWN,
        phases={},
        backend=Backend.CudaGraph if features.device is Device.Cuda else Backend.Recorder,
        compile=compile,
        prefill_chunk=top[0] if top and features.prefill_chunk is None else chunk,
        duties=dict.fromkeys(Phase, ()),
        gates=(),
        costs={},
        budget=budget({}, compile, features, None),
        decisions=(),
        refused=None,
        resolver_revision=RESOLVER_REVISION,
    )
    return _concluded(plan, search, {phase: phases[phase] for phase in Phase})


def refine(plan: Plan, facts: Facts) -> Plan:
    """The plan with what the engine knows of model, device and memory; it is never stronger than `plan`."""
    search = Search(plan.features, facts, plan.request.on_unsupported, Stage.Engine)
    reserved = _cost(Phase.Decode, plan.phases[Phase.Decode], plan.features, facts)
    limits = [amount for amount in (plan.request.budget_bytes, facts.free_bytes) if amount is not None]
    allowance = Allowance.of(min(limits, default=None), plan.request.budget_seconds, plan.compile, reserved)
    phases: dict[Phase, PhasePlan] = {}
    for phase, current in plan.phases.items():
        policy = current.planned
        if policy is not Policy.Disabled:
            order = candidates(phase, current.requested)
            policy = search.choose(phase, current.requested, order[order.index(policy) :], heard=policy)
        case = search.case(phase, policy)
        sizes: Ladder = ()
        if policy is not Policy.Disabled:
            sizes, changes = device_cut(current.sizes, case, plan.prefill_chunk, is_own=_chunk_is_own(plan))
            search.resize(case, changes)
            sizes, changes = pass_cut(sizes, case)
            search.resize(case, changes)
            sizes, changes = budget_cut(sizes, case, allowance)
            search.resize(case, changes)
            if not sizes:
                search.empty(case, current.requested)
        phases[phase] = PhasePlan(current.requested, policy if sizes else Policy.Disabled, sizes)
    cases = [search.case(phase, planned.planned) for phase, planned in phases.items()]
    compile = search.compile(plan.compile, AUTO_COMPILE, cases)
    return _concluded(replace(plan, facts=facts, compile=compile), search, phases)


def chunk_there(plan: Plan, facts: Facts) -> int:
    """Most tokens of one prefill pass on a known device: where the default ladder ends lower, the chunk ends with it,
    so that no pass is longer than the ladder and no memory is kept for one.
    """
    sizes = plan.phases[Phase.Prefill].sizes
    if sizes[-1:] != (plan.prefill_chunk,):
        return plan.prefill_chunk
    case = Case(plan.features, facts, Phase.Prefill, plan.phases[Phase.Prefill].planned)
    kept, _ = device_cut(sizes, case, plan.prefill_chunk, is_own=_chunk_is_own(plan))
    return kept[-1] if kept else plan.prefill_chunk


def cut_by_budget(plan: Plan) -> bool:
    """Whether a GPU's chunk is what a budget left of the default one. engine.json has a chunk in any case, so it says
    this, too.
    """
    if plan.features.device is Device.Cpu or _chunk_is_own(plan):
        return False
    return plan.prefill_chunk != default_chunk(plan.features)


def _chunk_is_own(plan: Plan) -> bool:
    """Whether the chunk is the user's: as a number, or as the largest size of a ladder."""
    if plan.request.prefill_cut or plan.prefill_chunk == default_chunk(plan.features):
        return False
    return plan.features.prefill_chunk is not None or plan.request.prefill_sizes is not None


def weaken(plan: Plan, phase: Phase, rule: str, because: str) -> Plan:
    """`plan` with `phase` at the next weaker policy that no rule excludes, by `rule` (CaptureFailed,
    CaptureOutOfMemory or SelfCheckFailed). A phase that is Disabled already stays so: ValueError.
    """
    current = plan.phases[phase]
    if current.planned is Policy.Disabled:
        raise ValueError(f"{phase} is Disabled already: nothing weaker is left")
    search = Search(plan.features, plan.facts, plan.request.on_unsupported, Stage.Engine)
    search.decide(BY_NAME[rule], search.case(phase, current.planned), Outcome.Degraded, because)
    policy = search.choose(phase, Policy.Auto, _after(phase, current.planned))
    sizes = () if policy is Policy.Disabled else current.sizes
    return _concluded(plan, search, {**plan.phases, phase: replace(current, planned=policy, sizes=sizes)})


def shorten(plan: Plan, phase: Phase, sizes: Ladder, because: str) -> Plan:
    """`plan` with the ladder of `phase` cut to `sizes`, a proper part of it, by rule LadderMemory."""
    current = plan.phases[phase]
    if not sizes or not set(sizes) < set(current.sizes):
        raise ValueError(f"a shorter ladder for {phase} must be a non-empty part of {current.sizes}, not {sizes}")
    search = Search(plan.features, plan.facts, plan.request.on_unsupported, Stage.Engine)
    search.decide(BY_NAME["LadderMemory"], search.case(phase, current.planned), Outcome.Adjusted, because)
    return _concluded(plan, search, {**plan.phases, phase: replace(current, sizes=sizes)})


def uncompiled(plan: Plan, phases: tuple[Phase, ...], because: str) -> Plan:
    """`plan` without what was to be compiled for `phases`, by rule CompileFailed. Compiling is Nothing once that is all
    of them; pieces are of prefill alone.
    """
    search = Search(plan.features, plan.facts, plan.request.on_unsupported, Stage.Engine)
    for phase in phases:
        case = search.case(phase, plan.phases[phase].planned)
        search.decide(BY_NAME["CompileFailed"], case, Outcome.Adjusted, because)
    compile = CompileMode.Nothing if set(phases) == set(Phase) else plan.compile
    return _concluded(replace(plan, compile=compile), search, dict(plan.phases))


def candidates(phase: Phase, asked: Policy) -> tuple[Policy, ...]:
    """The order of a request, strongest first: the policy that is asked for, then Auto's order without it."""
    order = AUTO_ORDER[phase]
    return order if asked is Policy.Auto else (asked, *(policy for policy in order if policy is not asked))


def _after(phase: Phase, failed: Policy) -> tuple[Policy, ...]:
    """What is left of Auto's order when captures of `failed` failed."""
    order = AUTO_ORDER[phase]
    return order[order.index(failed) + 1 :] if failed in order else order


def _is_short_of_time(plan: Plan) -> bool:
    return any(decision.rule == "LadderTime" for decision in plan.decisions)


def _cost(phase: Phase, planned: PhasePlan, features: Features, facts: Facts) -> Cost:
    return phase_cost(phase, planned.planned, planned.sizes, features, facts.model)


def _concluded(plan: Plan, search: Search, phases: dict[Phase, PhasePlan]) -> Plan:
    """`plan` with these phases, and what follows from them: duties, gates, costs, budget, decisions by phase."""
    cases = {phase: search.case(phase, planned.planned) for phase, planned in phases.items()}
    duties = {phase: search.duties(case, plan.duties[phase]) for phase, case in cases.items()}
    asked = {rule.id for case in cases.values() for rule in speaking(case, Severity.Gate)}
    costs = {phase: _cost(phase, planned, plan.features, plan.facts) for phase, planned in phases.items()}
    order = list(Phase)
    decided: list[Decision] = sorted(search.decisions, key=lambda decision: order.index(decision.phase))
    return replace(
        plan,
        phases=phases,
        duties=duties,
        gates=tuple(name for name in GATES if name in asked),
        costs=costs,
        budget=budget(costs, plan.compile, plan.features, plan.facts.model),
        decisions=(*plan.decisions, *decided),
        refused=plan.refused or search.refused,
    )
