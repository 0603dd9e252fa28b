"""The resolver: features and a request in, a plan with its decisions out. Total, deterministic, no I/O.

Two callers share it. The operator resolves what the spec says; the engine starts from that plan and can only
weaken it, by `refine` with facts, by `shorten` when memory runs out, by `weaken` when a capture fails.
"""

from dataclasses import dataclass, replace

from graphpod_policy.features import Features, GraphRequest
from graphpod_policy.ladder import (
    CPU_PREFILL_MAX,
    Ladder,
    cpu_decode_ladder,
    cuda_decode_ladder,
    prefill_ladder,
)
from graphpod_policy.plan import Budget, Decision, PhasePlan, Plan
from graphpod_policy.rules import BY_ID, RULES, Rule
from graphpod_policy.words import Backend, CompileMode, Device, OnUnsupported, Outcome, Phase, Policy, Severity, Stage

RESOLVER_REVISION = "2026-11-21.1"
"""Changes whenever the table or the search may give another plan for the same input."""

AUTO_ORDER: dict[Phase, tuple[Policy, ...]] = {
    Phase.Prefill: (Policy.Breakable, Policy.Piecewise, Policy.Disabled),
    Phase.Decode: (Policy.Full, Policy.Breakable, Policy.Disabled),
}
"""Strongest first. An explicit policy that is not listed ranks above all of them."""

CUDA_PREFILL_CHUNK = 4096
"""Tokens of one prefill pass on a GPU unless the service says otherwise."""

IMPORT_AND_LOAD_SECONDS = 120
"""Allowance for interpreter, torch and weights before the first capture."""
CPU_SECONDS_PER_TOKEN = 0.03
"""Allowance for one padded row through warm-up, capture and self-check on a slow, shared CPU."""
CUDA_SECONDS_PER_SIZE = 0.5
"""Allowance for capturing and checking one size on a GPU (measured: about 0.02 s)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What only the engine knows, after loading the model."""

    attention_layers: int
    configured_layers: int


def resolve(features: Features, request: GraphRequest) -> Plan:
    """The plan for a service. Never raises; `plan.refused` says when `onUnsupported: Fail` ends the search."""
    decisions: list[Decision] = []
    refused: Decision | None = None
    phases: dict[Phase, PhasePlan] = {}
    chunk = _prefill_chunk(features, request)
    for phase in Phase:
        policy, refusal = _choose(phase, features, request, decisions)
        refused = refused or refusal
        sizes: Ladder = ()
        if policy is not Policy.Disabled:
            sizes = _ladder(phase, policy, features, request, chunk, decisions)
            if not sizes:
                decision = _decide(BY_ID["LadderEmpty"], phase, Stage.Spec, Outcome.Excluded)
                decisions.append(decision)
                if request.on_unsupported is OnUnsupported.Fail and request.policy(phase) is not Policy.Auto:
                    refused = refused or replace(decision, outcome=Outcome.Refused)
                policy = Policy.Disabled
        phases[phase] = PhasePlan(request.policy(phase), policy, sizes)
    prefill_sizes = phases[Phase.Prefill].sizes
    return Plan(
        phases=phases,
        backend=Backend.CudaGraph if features.device is Device.Cuda else Backend.Recorder,
        compile=CompileMode.Nothing if request.compile is CompileMode.Auto else request.compile,
        prefill_chunk=features.prefill_chunk or (prefill_sizes[-1] if prefill_sizes else chunk),
        decisions=tuple(decisions),
        gates=_gates(phases),
        budget=_budget(features, phases),
        refused=refused,
        resolver_revision=RESOLVER_REVISION,
    )


def refine(plan: Plan, facts: Facts) -> Plan:
    """The plan after the engine has seen the model; it is never stronger than `plan`."""
    if facts.attention_layers == facts.configured_layers:
        return plan
    because = f"{facts.attention_layers} attention layers found, {facts.configured_layers} configured"
    for phase in Phase:
        if plan.phases[phase].planned is not Policy.Disabled:
            plan = _replace_phase(plan, phase, Policy.Disabled, (), "UnknownLayers", Outcome.Degraded, because)
    return plan


def weaken(plan: Plan, phase: Phase, rule: str, because: str) -> Plan:
    """`plan` with `phase` one step down the Auto order, by `rule` (CaptureFailed, CaptureOutOfMemory or
    SelfCheckFailed). A phase that is Disabled already stays so: ValueError.
    """
    current = plan.phases[phase]
    order = AUTO_ORDER[phase]
    if current.planned is Policy.Disabled:
        raise ValueError(f"{phase} is Disabled already: nothing weaker is left")
    start = order.index(current.planned) + 1 if current.planned in order else 0
    features = Features(device=Device.Cuda if plan.backend is Backend.CudaGraph else Device.Cpu)
    weaker = next(
        policy for policy in order[start:] if policy is Policy.Disabled or not _excluding(phase, policy, features)
    )
    sizes = () if weaker is Policy.Disabled else current.sizes
    return _replace_phase(plan, phase, weaker, sizes, rule, Outcome.Degraded, because)


def shorten(plan: Plan, phase: Phase, sizes: Ladder, because: str) -> Plan:
    """`plan` with the ladder of `phase` cut to `sizes`, a proper part of it, by rule LadderMemory."""
    current = plan.phases[phase]
    if not sizes or not set(sizes) < set(current.sizes):
        raise ValueError(f"a shorter ladder for {phase} must be a non-empty part of {current.sizes}, not {sizes}")
    return _replace_phase(plan, phase, current.planned, sizes, "LadderMemory", Outcome.Adjusted, because)


def _choose(
    phase: Phase, features: Features, request: GraphRequest, decisions: list[Decision]
) -> tuple[Policy, Decision | None]:
    """The first candidate no rule excludes, and the refusal when `onUnsupported: Fail` forbids to go on."""
    asked = request.policy(phase)
    order = AUTO_ORDER[phase]
    if asked is Policy.Auto:
        candidates = order
    else:
        candidates = (asked, *(order[order.index(asked) + 1 :] if asked in order else order))
    for candidate in candidates:
        rules = _excluding(phase, candidate, features)
        explicit = candidate is asked
        unsupported = [rule for rule in rules if rule.severity is Severity.Unsupported]
        if explicit and rules and not unsupported:
            decisions += [_decide(rule, phase, Stage.Spec, Outcome.Forced) for rule in rules]
            return candidate, None
        if not rules:
            return candidate, None
        if explicit and request.on_unsupported is OnUnsupported.Fail:
            refusal = _decide(unsupported[0], phase, Stage.Spec, Outcome.Refused)
            decisions.append(refusal)
            return Policy.Disabled, refusal
        decisions += [_decide(rule, phase, Stage.Spec, Outcome.Excluded) for rule in rules]
    return Policy.Disabled, None


def _excluding(phase: Phase, policy: Policy, features: Features) -> list[Rule]:
    """The rules of the table that exclude `policy` for `phase`; empty for Disabled."""
    return [
        rule
        for rule in RULES
        if rule.severity in (Severity.Unsupported, Severity.Unproven)
        and rule.when is not None
        and phase in rule.phases
        and policy in rule.policies
        and rule.when(features, phase, policy)
    ]


def _prefill_chunk(features: Features, request: GraphRequest) -> int:
    """Most tokens of one prefill pass: the user's, else the largest asked size, else the device's default."""
    default = CUDA_PREFILL_CHUNK if features.device is Device.Cuda else CPU_PREFILL_MAX
    asked = features.prefill_chunk or (max(request.prefill_sizes) if request.prefill_sizes else default)
    return min(asked, features.max_model_len * features.max_batch)


def _ladder(
    phase: Phase,
    policy: Policy,
    features: Features,
    request: GraphRequest,
    chunk: int,
    decisions: list[Decision],
) -> Ladder:
    limit = chunk if phase is Phase.Prefill else features.max_batch
    asked = request.sizes(phase)
    if features.device is Device.Cpu:
        decisions.append(_decide(BY_ID["NoCuda"], phase, Stage.Spec, Outcome.Adjusted))
    if asked is None:
        if phase is Phase.Prefill:
            return prefill_ladder(limit)
        return cpu_decode_ladder(limit) if features.device is Device.Cpu else cuda_decode_ladder(limit)
    kept = tuple(size for size in sorted(set(asked)) if size <= limit)
    if len(kept) < len(set(asked)):
        unit = "tokens" if phase is Phase.Prefill else "sequences"
        dropped = ", ".join(str(size) for size in sorted(set(asked) - set(kept)))
        because = f"one {phase} pass holds at most {limit} {unit}: dropped {dropped}"
        decisions.append(_decide(BY_ID["LadderClamp"], phase, Stage.Spec, Outcome.Adjusted, because))
    return kept


def _gates(phases: dict[Phase, PhasePlan]) -> tuple[str, ...]:
    """Run-time rules that concern a phase which runs graphs."""
    active = {phase for phase, plan in phases.items() if plan.planned is not Policy.Disabled}
    return tuple(rule.id for rule in RULES if rule.severity is Severity.Gate and active & set(rule.phases))


def _budget(features: Features, phases: dict[Phase, PhasePlan]) -> Budget:
    """A ceiling, not a forecast: a start that is slower than this is stopped by the startup probe."""
    if features.device is Device.Cuda:
        seconds = CUDA_SECONDS_PER_SIZE * sum(len(plan.sizes) for plan in phases.values())
    else:
        seconds = CPU_SECONDS_PER_TOKEN * sum(sum(plan.sizes) for plan in phases.values())
    capture = max(1, round(seconds))
    return Budget(capture_seconds=capture, start_seconds=IMPORT_AND_LOAD_SECONDS + 2 * capture)


def _decide(rule: Rule, phase: Phase, stage: Stage, outcome: Outcome, because: str | None = None) -> Decision:
    return Decision(rule.id, phase, stage, outcome, because or rule.because, rule.hint)


def _replace_phase(
    plan: Plan, phase: Phase, policy: Policy, sizes: Ladder, rule: str, outcome: Outcome, because: str
) -> Plan:
    changed = replace(plan.phases[phase], planned=policy, sizes=sizes)
    return replace(
        plan,
        phases={**plan.phases, phase: changed},
        decisions=(*plan.decisions, _decide(BY_ID[rule], phase, Stage.Engine, outcome, because)),
    )
