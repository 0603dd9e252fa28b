"""The status of a service, from what was planned, applied and observed. Pure: the same input gives the same status."""

from __future__ import annotations

from collections.abc import Mapping

from graphpod_operator.api.names import selector
from graphpod_operator.api.status import Condition, ConditionStatus, Failure, ServicePhase, Status
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.message import sentence
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ROOTS, UPDATES, ConditionType
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.pod_diagnosis import Diagnosis, Expected, diagnose
from graphpod_operator.observe.replica_failure import NO_PODS
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.refused import Refused
from graphpod_operator.plan.weights_orders import wish
from graphpod_operator.render.pod import group_key
from graphpod_operator.render.service import url, written_port
from graphpod_operator.revisions.accepted_plan import AcceptedPlan
from graphpod_operator.status.condition_findings import (
    blocked_findings,
    current_pods,
    earlier_failure,
    failed_pods,
    find_available,
    find_degraded,
    find_scheduled,
    find_updates,
    is_overdue,
    pods_asked,
    root_findings,
    still_serving,
)
from graphpod_operator.status.download_findings import model_status
from graphpod_operator.status.engine import engine_status
from graphpod_operator.status.finding import Finding
from graphpod_operator.status.graph import graph_status
from graphpod_operator.status.optional_findings import find_optional, find_scaling
from graphpod_operator.status.weights_findings import find_asleep, is_settled, weights_of, weights_status

STOPPED = (Reason.Suspended, Reason.Sleeping, Reason.SleepPaused)
"""Reasons of a service that is not Ready because its user wants it so: nothing works towards Ready."""


def status(
    found: Service,
    outcome: Desired | Refused,
    refused: Refused | None,
    seen: Observed,
    now: str,
    accepted: AcceptedPlan | None,
) -> Status:
    """The status to write.

    `outcome` is the planner's answer, `refused` what stopped the apply, if anything did; `now` (RFC 3339) dates the
    conditions whose status changes. `accepted` is the plan of the spec, and of what runs while the spec is refused.
    """
    stop = outcome if isinstance(outcome, Refused) else refused
    diagnosis = place = None
    if isinstance(outcome, Desired) and stop is None:
        current = current_pods(outcome, seen)
        expected, earlier = _expected(found, outcome, seen, now), earlier_failure(found, outcome)
        diagnosis = diagnose(failed_pods(outcome, seen), seen.readings, expected, earlier)
        if diagnosis is not None and outcome.can_weaken:
            diagnosis = diagnosis.survived()
        findings = root_findings(found, outcome, seen, current, diagnosis, now)
        apart = {
            ConditionType.Scheduled: find_scheduled(outcome, seen, current),
            ConditionType.Degraded: find_degraded(outcome, current, seen),
            **find_updates(outcome),
            **find_optional(found, outcome, seen, now),
            **({ConditionType.ScalingReady: find_scaling(outcome, seen)} if outcome.replicas is None else {}),
        }
        wanted, weights = wish(found), weights_of(current, seen)
        asleep = find_asleep(wanted, weights, pods_asked(outcome, seen), is_settled(outcome, seen), seen)
        apart |= {} if asleep is None else {ConditionType.Asleep: asleep}
        place = weights_status(wanted, weights, pods_asked(outcome, seen))
    else:
        assert stop is not None
        findings = blocked_findings(stop, seen)
        nothing = Finding(Reason.NotAccepted, "nothing is planned for this spec")
        apart = dict.fromkeys((ConditionType.Scheduled, ConditionType.Degraded, *UPDATES), nothing)
    apart[ConditionType.Available] = find_available(seen)
    overdue = isinstance(outcome, Desired) and stop is None and is_overdue(outcome, seen, diagnosis)
    conditions = _conditions(found, findings, apart, now, overdue, still_serving(seen) if stop is not None else "")
    return Status(
        observed_generation=found.generation,
        phase=_phase(conditions),
        conditions=conditions,
        url=url(found.key.name, found.key.namespace, written_port(found.spec)) if _has_pods(seen) else None,
        addresses=(seen.route.addresses or None) if seen.route is not None and seen.route.taken else None,
        replicas=seen.rollout.replicas if seen.rollout else 0,
        updated_replicas=seen.rollout.updated if seen.rollout else 0,
        ready_replicas=seen.rollout.ready if seen.rollout else 0,
        pods=_pods(outcome, seen),
        revision=accepted.revision if accepted is not None else None,
        selector=",".join(f"{key}={value}" for key, value in selector(found.key.name).items()),
        graph=graph_status(accepted, seen.pods, seen.readings, seen.advice) if accepted is not None else None,
        model=model_status(outcome.weights, seen)
        if isinstance(outcome, Desired) and outcome.weights is not None
        else None,
        engine=engine_status(accepted.config_hash if accepted is not None else None, seen.pods, seen.readings),
        weights=place,
        last_failure=_last_failure(found, outcome, diagnosis, findings[ConditionType.WorkloadAvailable]),
    )


def _expected(found: Service, outcome: Desired, seen: Observed, now: str) -> Expected:
    return Expected(
        now,
        outcome.mounts,
        outcome.start_limit,
        found.spec["model"]["uri"],
        outcome.pulls_with,
        group_key.secret_of(outcome.workload),
        seen.leaving,
    )


def _has_pods(seen: Observed) -> bool:
    """Whether pods exist behind the Service, or are to. The address stays while they restart: Available says whether
    one answers.
    """
    return seen.rollout is not None and (seen.rollout.asked > 0 or seen.rollout.replicas > 0)


def _pods(outcome: Desired | Refused, seen: Observed) -> str | None:
    """Pods that serve over pods asked for: also while a later spec is refused."""
    if isinstance(outcome, Desired):
        return f"{seen.rollout.ready if seen.rollout else 0}/{pods_asked(outcome, seen)}"
    return f"{seen.rollout.ready}/{seen.rollout.asked}" if seen.rollout is not None else None


def _conditions(
    found: Service,
    findings: dict[ConditionType, Finding],
    apart: dict[ConditionType, Finding],
    now: str,
    overdue: bool,
    serving: str,
) -> tuple[Condition, ...]:
    cause, finding = min(findings.items(), key=lambda item: (*_explains(item[1].reason), ROOTS.index(item[0])))
    statuses = {entry.reason.row.status for entry in findings.values()}
    whole: dict[ConditionType, tuple[ConditionStatus, Reason, str]] = {
        kind: (entry.reason.row.status, entry.reason, entry.what) for kind, entry in (findings | apart).items()
    }
    if statuses == {ConditionStatus.true}:
        graphs = findings[ConditionType.GraphsCaptured]
        serves = {Reason.NotRequired: "serves eagerly: both phases are Disabled"}.get(graphs.reason)
        summary = (
            graphs if graphs.reason is Reason.Degraded else Finding(Reason.Ready, serves or "serves on proved graphs")
        )
        whole[ConditionType.Ready] = (ConditionStatus.true, summary.reason, summary.what)
    else:
        ready = ConditionStatus.false if ConditionStatus.false in statuses else ConditionStatus.unknown
        whole[ConditionType.Ready] = (ready, finding.reason, finding.what)
        if finding.reason.row.stalled or overdue:
            whole[ConditionType.Stalled] = (ConditionStatus.true, finding.reason, finding.what)
        elif finding.reason not in STOPPED:
            whole[ConditionType.Reconciling] = (ConditionStatus.true, Reason.Progressing, f"waiting for {cause}")
    before = {entry.get("type"): entry for entry in found.status.get("conditions") or ()}
    in_order = [(kind, whole[kind]) for kind in ConditionType if kind in whole]
    return tuple(
        Condition(
            type=kind.value,
            status=state,
            reason=reason.name,
            message=sentence(
                reason,
                what,
                found.key.name,
                namespace=found.key.namespace,
                after=serving if kind in (ConditionType.Ready, ConditionType.Stalled) else "",
            ),
            observed_generation=found.generation,
            last_transition_time=_since(before.get(kind.value), state, now),
        )
        for kind, (state, reason, what) in in_order
    )


def _phase(conditions: tuple[Condition, ...]) -> ServicePhase:
    """The conditions in one word."""
    by_type = {condition.type: condition for condition in conditions}
    if by_type[ConditionType.Accepted].status is ConditionStatus.false:
        return ServicePhase.Refused
    if by_type[ConditionType.Ready].status is ConditionStatus.true:
        degraded = by_type[ConditionType.Ready].reason == Reason.Degraded.name
        return ServicePhase.Degraded if degraded else ServicePhase.Ready
    if by_type[ConditionType.WorkloadAvailable].reason == Reason.Suspended.name:
        return ServicePhase.Suspended
    if by_type[ConditionType.WorkloadAvailable].reason in (Reason.Sleeping.name, Reason.SleepPaused.name):
        return ServicePhase.Sleeping
    if ConditionType.Stalled in by_type:
        return ServicePhase.Stalled
    downloads = by_type[ConditionType.ModelAvailable].reason == Reason.Downloading.name
    return ServicePhase.Downloading if downloads else ServicePhase.Starting


def _explains(reason: Reason) -> tuple[bool, bool, bool, bool]:
    """Sort key: the reason that explains most comes first."""
    row = reason.row
    return (
        row.status is ConditionStatus.true,
        not row.stalled,
        row.consequence,
        row.status is ConditionStatus.unknown,
    )


def _since(before: Mapping[str, str] | None, state: ConditionStatus, now: str) -> str:
    if before is not None and before.get("status") == state.value:
        return before.get("lastTransitionTime", now)
    return now


def _last_failure(
    found: Service, outcome: Desired | Refused, diagnosis: Diagnosis | None, workload: Finding
) -> Failure | None:
    """What keeps a pod from serving; of a group that was made again why, until it serves or its engine ends again: what
    its new pods wait for is in the conditions.
    """
    failure = _failure(diagnosis, workload, found.key)
    if isinstance(outcome, Refused) or (failure is not None and failure.exit_code is not None):
        return failure
    if workload.reason.row.status is ConditionStatus.true or workload.reason in STOPPED:
        return failure
    return earlier_failure(found, outcome) or failure


def _failure(diagnosis: Diagnosis | None, workload: Finding, key: Key) -> Failure | None:
    """What keeps a pod of the service `key` from serving, or from being created."""
    if diagnosis is not None and diagnosis.reason is Reason.PreviousDraining:
        return None  # a step of a rollout
    if diagnosis is None:
        refused = workload.reason in NO_PODS
        return (
            Failure(
                reason=workload.reason.name,
                message=sentence(workload.reason, workload.what, key.name, namespace=key.namespace),
            )
            if refused
            else None
        )
    return Failure(
        reason=diagnosis.reason.name,
        message=sentence(diagnosis.reason, diagnosis.what, key.name, diagnosis.pod.name, key.namespace),
        pod=diagnosis.pod.name,
        exit_code=diagnosis.exit_code,
        restarts=diagnosis.pod.restarts,
    )
