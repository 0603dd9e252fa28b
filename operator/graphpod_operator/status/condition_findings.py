"""What each condition says of a service, and why: one function for each condition. Pure."""

from __future__ import annotations

from datetime import datetime

from graphpod_operator.api.names import INSTANCE_LABEL, MANAGED_BY, OWNER_LABEL
from graphpod_operator.api.status import Failure
from graphpod_operator.cache.child import DeploymentRollout
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.message import SERVING, step
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ROOTS, UPDATES, ConditionType
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.pod_diagnosis import PRECEDENCE, Diagnosis, unscheduled
from graphpod_operator.observe.replica_failure import refusal
from graphpod_operator.observe.warmup_report import NoReading, Reading, State
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.refused import Refused
from graphpod_operator.plan.weights_orders import Order, orders, wish
from graphpod_operator.status.download_findings import find_download
from graphpod_operator.status.finding import Finding
from graphpod_operator.status.graph import is_weaker
from graphpod_operator.status.group_findings import find_no_surge
from graphpod_operator.status.weights_findings import find_away, find_reload, is_settled, weights_of
from graphpod_operator.telemetry.label_values import Missing
from graphpod_policy import Outcome, Plan

LOADED = (State.Capturing, State.SelfChecking, State.Ready)
"""States of a start in which the weights are there."""
UNDER_WAY = (State.Loading, State.Capturing, State.SelfChecking)
"""States of a start that the engine's front watches: it ends one that makes no progress."""
IMPORT_SECONDS = 30.0
"""From a container's start until its admin port, if it is silent, counts as unreachable: Python's start and the front's
own imports on a busy node."""
UNREAD = {Missing.Unreachable: Reason.EngineUnreachable, Missing.Mismatch: Reason.EngineMisreports}
"""Why nothing is known of a running pod's graphs."""


def current_pods(desired: Desired, seen: Observed) -> tuple[Pod, ...]:
    """The pods of the planned configuration and form that are to serve. The hash alone is not enough: pods of another
    image, say, have the same one.
    """
    planned = desired.config_hash, desired.template
    return tuple(
        pod for pod in seen.pods if (pod.config_hash, pod.template) == planned and not pod.deleting and pod.gone is None
    )


def earlier_pods(desired: Desired, seen: Observed) -> tuple[Pod, ...]:
    """Pods of another configuration or form, which the rollout has not replaced yet."""
    current = {pod.uid for pod in current_pods(desired, seen)}
    return tuple(pod for pod in seen.pods if pod.uid not in current and not pod.deleting and pod.gone is None)


def failed_pods(desired: Desired, seen: Observed) -> tuple[Pod, ...]:
    """The current pods, and those of groups that go because one of them has ended: a while later nothing shows why."""
    planned = desired.config_hash, desired.template
    groups = (pod for pod in seen.pods if pod.index is not None and pod.deleting and pod.ended is not None)
    return *current_pods(desired, seen), *(pod for pod in groups if (pod.config_hash, pod.template) == planned)


def blocked_findings(stop: Refused, seen: Observed) -> dict[ConditionType, Finding]:
    """What the conditions that Ready is made of report for a service that is refused."""
    pods = still_serving(seen) or "no pod runs for this spec"
    rest = {root: Finding(Reason.NotAccepted, pods) for root in ROOTS[1:]}
    return {ConditionType.Accepted: Finding(stop.reason, stop.what), **rest}


def still_serving(seen: Observed) -> str:
    """How many pods serve while the spec is refused, in words; empty when none does."""
    serving = len(_ready(seen))
    asked = seen.rollout.asked if seen.rollout is not None else serving
    return f"{SERVING} ({serving}/{asked})" if serving else ""


def _ready(seen: Observed) -> list[Pod]:
    return [pod for pod in seen.pods if pod.ready and not pod.deleting and pod.answers_requests]


def root_findings(
    found: Service,
    desired: Desired,
    seen: Observed,
    current: tuple[Pod, ...],
    diagnosis: Diagnosis | None,
    now: str,
) -> dict[ConditionType, Finding]:
    """What the conditions that Ready is made of report for a service that can run, at the time `now` (RFC 3339)."""
    accepted = Finding(Reason.Accepted, "the spec has a plan and its objects are applied")
    if found.paused:
        accepted = Finding(Reason.Paused, "paused: the spec has a plan, and its objects stay as they are")
    wanted, asked = wish(found), pods_asked(desired, seen)
    weights, settled = weights_of(current, seen), is_settled(desired, seen)
    model = _model(desired, current, seen, diagnosis)
    if model.reason is Reason.Loaded:
        model = find_reload(wanted, weights, asked, settled, seen) or model
    workload = _workload(found, desired, seen, current, diagnosis, find_away(wanted, weights, asked))
    return {
        ConditionType.Accepted: accepted,
        ConditionType.ModelAvailable: model,
        ConditionType.WorkloadAvailable: _again(found, desired, workload),
        ConditionType.GraphsCaptured: _graphs(desired, seen, current, diagnosis, now),
    }


def _diagnosed(condition: ConditionType, diagnosis: Diagnosis | None) -> Finding | None:
    """The diagnosis, if it is about this condition. One that was overcome is about the restart."""
    if diagnosis is None:
        return None
    reason, what = diagnosis.reason, f"pod {diagnosis.pod.name}: {diagnosis.what}"
    if diagnosis.overcome:
        what = f"pod {diagnosis.pod.name}: start {diagnosis.pod.restarts + 1} after {reason.name}: {diagnosis.what}"
        reason, what = Reason.Restarting, f"{what}; {Reason.Restarting.row.todo}"
    return Finding(reason, what) if condition in reason.row.types else None


def _model(desired: Desired, current: tuple[Pod, ...], seen: Observed, diagnosis: Diagnosis | None) -> Finding:
    download = find_download(desired.weights, seen) if desired.weights is not None else None
    ready = any(pod.ready and pod.answers_requests for pod in current)
    if download is not None and not ready:
        return download
    if (failed := _diagnosed(ConditionType.ModelAvailable, diagnosis)) is not None:
        return failed
    states = _states(current, seen)
    captured_badly = _diagnosed(ConditionType.GraphsCaptured, diagnosis) is not None
    if states.intersection(LOADED) or captured_badly or ready:
        return Finding(Reason.Loaded, "the weights are loaded")
    if State.Loading in states and diagnosis is None:
        return Finding(Reason.Loading, "a pod is loading the weights")
    return Finding(Reason.ModelPending, "no pod has loaded the weights yet")


def _states(current: tuple[Pod, ...], seen: Observed) -> set[State]:
    """How far the starts of these pods have got."""
    answers = (seen.readings.get(pod.uid) for pod in current)
    return {answer.state for answer in answers if isinstance(answer, Reading)}


def _workload(
    found: Service,
    desired: Desired,
    seen: Observed,
    current: tuple[Pod, ...],
    diagnosis: Diagnosis | None,
    away: Finding | None,
) -> Finding:
    rollout, asked = seen.rollout, pods_asked(desired, seen)
    pods = "pods" if desired.nodes == 1 else f"groups of {desired.nodes} pods"
    if asked == 0:
        return Finding(Reason.Suspended, "the spec requests no pods")
    if (failed := _diagnosed(ConditionType.WorkloadAvailable, diagnosis)) is not None:
        return failed
    if away is not None:
        return away
    if (old := find_no_surge(found, desired, seen, current)) is not None:
        return old
    if rollout is None or not rollout.observed:
        return Finding(Reason.Starting, f"0 of {asked} {pods} of this spec serve{_lost(desired, seen)}")
    # Updated pods may all be waiting while older ones are available, and the Deployment may be seen before its pods:
    # only a ready pod of this spec that we know serves it.
    serving = min(rollout.updated, sum(pod.ready and pod.answers_requests for pod in current), asked)
    if rollout.updated == rollout.available == rollout.replicas == asked == serving:
        return Finding(Reason.Available, f"{asked} of {asked} {pods} serve")
    if rollout.refused is not None:
        return _refused_pods(rollout.refused, seen)
    if is_overdue(desired, seen, diagnosis):
        silent = (answer.message for pod in current if isinstance(answer := seen.readings.get(pod.uid), NoReading))
        what = f"{serving} of {asked} pods of this spec serve, and no start makes progress"
        return Finding(Reason.RolloutStuck, "; ".join((what, *list(silent)[:1])))
    rest = _lost(desired, seen) or _unlabelled(found, rollout, seen)
    if not rest and desired.nodes > 1 and serving == 0:
        # a leader waits as long as a worker cannot reach it, and only their logs say so
        rest = f"; if it stays so: {step(LOGS, found.key.name, '', '', found.key.namespace)}"
    rest = rest or (f"; the {desired.kind.kind} still counts other pods" if serving == asked else "")
    return Finding(Reason.Starting, f"{serving} of {asked} {pods} of this spec serve{rest}")


def _refused_pods(message: str, seen: Observed) -> Finding:
    """Why the cluster creates no pods. A quota counts a pod that is being deleted until it has gone."""
    reason, what = refusal(message)
    if reason is not Reason.QuotaExceeded or not seen.leaving:
        return Finding(reason, what)
    return Finding(Reason.PreviousDraining, f"a new pod waits for the quota of pod {seen.leaving[0].name}: {what}")


def _unlabelled(found: Service, rollout: DeploymentRollout, seen: Observed) -> str:
    """That pods serve which the operator does not see: somebody took labels away by which it watches pods. Kubernetes
    does not put labels of pods back, and the operator may not write pods.
    """
    # Not those that exist: a Deployment counts a new pod a moment before it is seen here.
    if rollout.available <= (known := len(_ready(seen))):
        return ""
    return (
        f"; {rollout.available} are available, and {known} of them have the labels {'='.join(MANAGED_BY)} and "
        f"{OWNER_LABEL}: kubectl -n {found.key.namespace} get pods -l {INSTANCE_LABEL}={found.key.name} --show-labels"
    )


LOGS = f"kubectl -n NAMESPACE logs -l {OWNER_LABEL}=NAME --prefix"
"""Of all pods of a group. Those of earlier pods are gone with them."""


def _again(found: Service, desired: Desired, finding: Finding) -> Finding:
    """The same, with why a group that starts was made again: its pods are new, and know nothing of it."""
    failure = earlier_failure(found, desired)
    if failure is None or finding.reason is not Reason.Starting:
        return finding
    cause = failure.message.partition("; ")[0]
    why = f"a group starts again after {failure.reason}" + (f": {cause}" if cause else "")
    return Finding(Reason.Restarting, f"{why}; {finding.what}; for the new pods: {LOGS}")


def earlier_failure(found: Service, desired: Desired) -> Failure | None:
    """The last failure of a pod of a group, as the status has it of this very spec; None of single pods, which have
    their own history. Other versions may have written more, or less, of it.
    """
    if desired.nodes == 1 or found.status.get("observedGeneration") != found.generation:
        return None
    said = found.status.get("lastFailure") or {}
    if said.get("exitCode") is None or not said.get("reason"):
        return None
    return Failure(
        reason=said["reason"],
        message=said.get("message", ""),
        pod=said.get("pod"),
        exit_code=said["exitCode"],
        restarts=said.get("restarts", 0),
    )


def is_overdue(desired: Desired, seen: Observed, diagnosis: Diagnosis | None) -> bool:
    """Whether the rollout counts as stuck: its deadline passed, and neither the scheduler, nor a start that makes
    progress, nor a weaker plan of ours may still bring it on (contract 14).
    """
    if seen.rollout is None or not (seen.rollout.observed and seen.rollout.overdue) or pods_asked(desired, seen) == 0:
        return False
    if desired.weights is not None and desired.weights.waits:
        return False
    if diagnosis is not None and not diagnosis.overcome:
        return ConditionType.Scheduled not in diagnosis.reason.row.types and diagnosis.reason is not Reason.StartDied
    current = current_pods(desired, seen)
    return not _states(current, seen).intersection(UNDER_WAY) and all(pod.placed for pod in current)


def _lost(desired: Desired, seen: Observed) -> str:
    """How the newest of the pods that failed permanently ended (others replace them), or what one waits for."""
    gone = [pod for pod in seen.pods if pod.gone is not None and pod.config_hash == desired.config_hash]
    gone = [pod for pod in gone if not pod.deleting]  # those have ended because they are to go
    newest = max(gone, key=lambda pod: pod.version, default=None)
    if newest is not None:
        return f"; pod {newest.name} failed permanently: {newest.gone}"
    # only the kubelet's events report a volume that cannot be mounted, and we have no right to read them
    made = (
        pod for pod in current_pods(desired, seen) if pod.waiting is not None and pod.waiting[0] == "ContainerCreating"
    )
    if (first := next(made, None)) is not None:
        describe = f"kubectl -n {first.namespace} describe pod {first.name}"
        return f"; pod {first.name} is in ContainerCreating; if it stays there: {describe}"
    there, wanted = len(current_pods(desired, seen)), desired.nodes * pods_asked(desired, seen)
    if desired.nodes > 1 and there < wanted and (going := [pod for pod in seen.pods if pod.deleting]):
        return f"; new pods wait until {_number(len(going), 'old pod has', 'old pods have')} gone"
    if desired.nodes > 1 and there < wanted:
        # the controllers of groups report in events alone why they can create no pod
        return f"; {there} of {wanted} pods exist; if it stays so: kubectl get events --field-selector type=Warning"
    return ""


def _graphs(
    desired: Desired, seen: Observed, current: tuple[Pod, ...], diagnosis: Diagnosis | None, now: str
) -> Finding:
    if (failed := _diagnosed(ConditionType.GraphsCaptured, diagnosis)) is not None:
        return failed
    earlier = [pod for pod in _ready(seen) if pod.config_hash != desired.config_hash]
    if earlier:
        return Finding(
            Reason.PreviousServing,
            _number(
                len(earlier),
                "pod of an earlier configuration still serves",
                "pods of an earlier configuration still serve",
            ),
        )
    answers = [(pod, seen.readings[pod.uid]) for pod in current if pod.uid in seen.readings]
    for pod, answer in answers:
        if isinstance(answer, NoReading) and not answer.is_borne and pod.running and not _imports(pod, answer, now):
            return Finding(UNREAD[answer.cause], answer.message)
    readings = [answer for _, answer in answers if isinstance(answer, Reading)]
    answering = [pod for pod in current if pod.ready and pod.answers_requests]
    unread = [pod for pod in answering if not isinstance(seen.readings.get(pod.uid), Reading)]
    if not readings or unread:
        return Finding(Reason.CapturePending, "no pod of the planned configuration has reported its graphs yet")
    states = _states(current, seen)
    if not _captures(desired.policy) and states != {State.Ready}:
        return Finding(Reason.CapturePending, "both phases are Disabled, and a pod is still starting")
    if states.intersection((State.Capturing, State.Failed)):
        return Finding(Reason.Capturing, _captured_so_far(desired.policy, readings))
    if State.SelfChecking in states:
        return Finding(Reason.SelfChecking, "a pod is comparing its captured graphs with uncaptured code")
    if State.Loading in states:
        return Finding(Reason.CapturePending, "a pod is loading the weights")
    return _proved(desired.policy, readings)


def _imports(pod: Pod, answer: NoReading, now: str) -> bool:
    """Whether the container runs so briefly that its front may not listen yet: no sign of a closed network."""
    if answer.cause is not Missing.Unreachable or pod.ready or pod.started is None:
        return False
    return (datetime.fromisoformat(now) - datetime.fromisoformat(pod.started)).total_seconds() < IMPORT_SECONDS


def _proved(policy: Plan, readings: list[Reading]) -> Finding:
    if weaker := _weaker(policy, readings):
        return Finding(Reason.Degraded, weaker)
    if not _captures(policy):
        return Finding(Reason.NotRequired, "both phases are Disabled")
    return Finding(Reason.Captured, "every graph is captured and proved")


def _captured_so_far(policy: Plan, readings: list[Reading]) -> str:
    """How far the slowest pod's captures are, and how long they still take by the plan's estimate."""
    planned = sum(len(row.sizes) for row in policy.phases.values())
    done = min(sum(entry.sizes.captured for entry in one.graph.values()) for one in readings)
    seconds = sum(cost.seconds for cost in policy.costs.values()) * (1 - min(1.0, done / planned))
    return f"{done}/{planned} graphs captured, about {max(1, round(seconds))} s left"


def _captures(policy: Plan) -> bool:
    """Whether any graph is planned."""
    return any(plan.sizes for plan in policy.phases.values())


def _weaker(policy: Plan, readings: list[Reading]) -> str:
    """Which phases run a weaker policy than planned, in words; empty when none does."""
    weaker = [
        f"{phase} runs {read.effective} instead of {plan.planned}"
        for phase, plan in policy.phases.items()
        for reading in readings
        if (read := reading.graph.get(phase)) is not None and is_weaker(phase, read.effective, plan)
    ]
    return ", ".join(dict.fromkeys(weaker))


def find_scheduled(desired: Desired, seen: Observed, current: tuple[Pod, ...]) -> Finding:
    """Whether every pod of the current spec has a node."""
    if (asked := pods_asked(desired, seen)) == 0:
        return Finding(Reason.Suspended, "the spec requests no pods")
    waiting = [diagnosis for pod in current if (diagnosis := unscheduled(pod, seen.leaving)) is not None]
    if waiting:
        worst = min(waiting, key=lambda one: PRECEDENCE.index(one.reason))
        return Finding(worst.reason, f"pod {worst.pod.name}: {worst.what}")
    placed, wanted = sum(pod.placed for pod in current), max(asked * desired.nodes, len(current))
    reason = Reason.PodsPending if placed < wanted else Reason.Scheduled
    return Finding(reason, f"{placed} of {wanted} pods of this spec have a node")


def pods_asked(desired: Desired, seen: Observed) -> int:
    """Pods that are to exist: by the spec, or by an autoscaler."""
    if desired.replicas is not None:
        return desired.replicas
    return seen.rollout.asked if seen.rollout is not None else desired.fewest


def orders_due(found: Service, desired: Desired, seen: Observed) -> tuple[Order, ...]:
    """What the annotations about weights want of the pods by what these report. Some of it may have been sent."""
    wanted, weights = wish(found), weights_of(current_pods(desired, seen), seen)
    earlier = weights_of(earlier_pods(desired, seen), seen)
    return orders(wanted, weights, pods_asked(desired, seen), is_settled(desired, seen), earlier)


def find_available(seen: Observed) -> Finding:
    """Whether a client gets an answer from a pod whose graphs are proved; the generation does not matter to it."""
    ready = _ready(seen)
    if not ready:
        return Finding(Reason.NothingServes, "no pod is ready")
    proved = [pod for pod in ready if _has_proved(seen.readings.get(pod.uid))]
    if not proved:
        return Finding(
            Reason.Unproved,
            _number(len(ready), "pod is ready", "pods are ready") + ", and none has reported its graphs",
        )
    return Finding(
        Reason.Serving, _number(len(proved), "pod with proved graphs serves", "pods with proved graphs serve")
    )


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _has_proved(answer: Reading | NoReading | None) -> bool:
    return isinstance(answer, Reading) and answer.terminal and answer.state is State.Ready


def find_degraded(desired: Desired, current: tuple[Pod, ...], seen: Observed) -> Finding:
    """Whether a pod runs a weaker policy than planned, or the plan is a weaker one."""
    if desired.capture_failures is not None and desired.capture_failures.steps:
        return Finding(Reason.StartsDied, desired.capture_failures.steps[-1].because)
    answers = [answer for pod in current if _has_proved(answer := seen.readings.get(pod.uid))]
    weaker = _weaker(desired.policy, [answer for answer in answers if isinstance(answer, Reading)])
    if weaker:
        return Finding(Reason.Degraded, weaker)
    asked_more = any(one.outcome is Outcome.Excluded for one in desired.policy.decisions)
    planned = ", but the plan has less than the spec requests: see status.graph.decisions" if asked_more else ""
    return Finding(Reason.AsPlanned, f"no pod runs a weaker policy than planned{planned}")


def find_updates(desired: Desired) -> dict[ConditionType, Finding]:
    """What this operator would do differently."""
    updates = {kind: Finding(news.reason, news.what) for news in desired.news for kind in news.reason.row.types}
    same = Finding(Reason.UpToDate, "the running pods are what this operator would create")
    return {kind: updates.get(kind, same) for kind in UPDATES}
