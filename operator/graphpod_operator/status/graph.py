"""`status.graph`: asked, planned, running. The plan comes from the resolver, the rest from the pods' readings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphpod_operator.api.status import (
    MAX_DECISIONS,
    MESSAGE_MAX,
    DecisionStatus,
    GraphStatus,
    LadderAdviceStatus,
    PhaseStatus,
    PodPolicies,
    SizeCounts,
)
from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe.warmup_report import STRENGTH, DecisionRead, NoReading, Reading, State
from graphpod_operator.revisions.accepted_plan import AcceptedPlan
from graphpod_policy import Backend, Decision, Phase, PhasePlan, Plan, Policy

MAX_PODS = 64
PHASES_BETWEEN = ", "
"""Between the phases of a decision that says the same of both."""
EAGER = "eager"
"""Instead of how many sizes are captured, where none is planned."""


def strength(phase: Phase, requested: Policy) -> tuple[Policy, ...]:
    """What a phase can run, strongest first: what was asked for explicitly, then as the resolver searches."""
    return STRENGTH[phase] if requested is Policy.Auto else tuple(dict.fromkeys((requested, *STRENGTH[phase])))


def is_weaker(phase: Phase, policy: Policy, than: PhasePlan) -> bool:
    """Whether `policy` comes after the planned one."""
    order = strength(phase, than.requested)
    return order.index(policy) > order.index(than.planned)


def graph_status(
    accepted: AcceptedPlan,
    pods: Iterable[Pod],
    readings: Mapping[str, Reading | NoReading],
    advice: LadderAdviceStatus | None = None,
) -> GraphStatus:
    """The graphs of the pods that run the accepted configuration; without one, the plan alone. `advice` is on the
    ladders of this configuration.
    """
    policy = accepted.policy
    answered = [
        (pod, reading)
        for pod in pods
        if isinstance(reading := readings.get(pod.uid), Reading)
        and reading.config_hash == accepted.config_hash
        and not pod.deleting
    ]
    read = [reading for _, reading in answered]
    ended = [(pod, reading) for pod, reading in answered if reading.terminal and reading.state is State.Ready]
    phases = {phase: _phase(policy, phase, read, [reading for _, reading in ended]) for phase in Phase}
    captured = sum(phase.sizes.captured for phase in phases.values())
    planned = sum(phase.sizes.planned for phase in phases.values())
    return GraphStatus(
        backend=(read[0].backend if read else policy.backend) if planned else None,
        captured=f"{captured}/{planned}" if planned else EAGER,
        prefill=phases[Phase.Prefill],
        decode=phases[Phase.Decode],
        decisions=_decisions(policy, read),
        gates=policy.gates,
        pods=_differing(ended),
        config_hash=accepted.config_hash,
        resolver_revision=policy.resolver_revision,
        budget_seconds=accepted.start_limit,
        capture_deaths=accepted.deaths,
        advice=advice,
    )


def _phase(policy: Plan, phase: Phase, read: list[Reading], ended: list[Reading]) -> PhaseStatus:
    plan = policy.phases[phase]
    counts = [entry.sizes for reading in read if (entry := reading.graph.get(phase)) is not None]
    running = [entry for reading in ended if (entry := reading.graph.get(phase)) is not None]
    effective = max((entry.effective for entry in running), key=strength(phase, plan.requested).index, default=None)
    return PhaseStatus(
        requested=plan.requested,
        planned=plan.planned,
        effective=effective,
        display=_display(phase, plan, effective, ended[0].backend if ended else policy.backend),
        sizes=SizeCounts(
            planned=len(plan.sizes),
            captured=min((count.captured for count in counts), default=0),
            failed=max((count.failed for count in counts), default=0),
        ),
        capture_seconds=max((round(entry.capture_seconds, 3) for entry in running), default=None),
        self_check=_self_check([entry.self_check for entry in running]),
    )


def _display(phase: Phase, plan: PhasePlan, effective: Policy | None, backend: Backend) -> str:
    if effective is None:
        return f"{plan.planned.value} (planned)"
    return display(effective, backend, plan.planned if is_weaker(phase, effective, plan) else None)


def display(effective: Policy, backend: Backend, planned: Policy | None = None) -> str:
    """The printer column: the CPU's recorder must not pass for CUDA graphs. `planned`: the policy that the pods
    fell back from.
    """
    notes = []
    if effective is not Policy.Disabled and backend is not Backend.CudaGraph:
        notes.append(backend.value.lower())
    if planned is not None:
        notes.append(f"planned {planned.value}")
    return f"{effective.value} ({', '.join(notes)})" if notes else effective.value


def _self_check(results: list[str]) -> str | None:
    """One pod's failure is reported before the others' success."""
    return next((result for result in ("Failed", "NotRun", "Passed") if result in results), None)


def _decisions(policy: Plan, read: list[Reading]) -> tuple[DecisionStatus, ...]:
    """The operator's decisions, then those the engines added, each once, whoever of them repeats it. One that says the
    same of both phases is one entry.
    """
    decisions: dict[tuple[str, Phase, str], DecisionStatus] = {}
    spoken: list[Decision | DecisionRead] = [
        *policy.decisions,
        *(decision for reading in read for decision in reading.decisions),
    ]
    for decision in spoken:
        decisions.setdefault(
            (decision.rule, decision.phase, decision.because),
            DecisionStatus(
                rule=decision.rule[:64],
                phase=decision.phase.value,
                stage=decision.stage,
                outcome=decision.outcome,
                because=decision.because[:MESSAGE_MAX],
                hint=decision.hint[:MESSAGE_MAX],
            ),
        )
    alike: dict[DecisionStatus, list[str]] = {}
    for one in decisions.values():
        alike.setdefault(one.model_copy(update={"phase": ""}), []).append(one.phase)
    merged = (one.model_copy(update={"phase": PHASES_BETWEEN.join(phases)}) for one, phases in alike.items())
    return tuple(merged)[:MAX_DECISIONS]


def _differing(ended: list[tuple[Pod, Reading]]) -> tuple[PodPolicies, ...] | None:
    """Each pod's policies, if they are not the same everywhere."""
    rows = tuple(
        PodPolicies(
            name=pod.name,
            prefill=reading.graph[Phase.Prefill].effective,
            decode=reading.graph[Phase.Decode].effective,
        )
        for pod, reading in ended
        if Phase.Prefill in reading.graph and Phase.Decode in reading.graph
    )
    return rows[:MAX_PODS] if len({(row.prefill, row.decode) for row in rows}) > 1 else None
