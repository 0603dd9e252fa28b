"""The page of `graphpod why`: verdict, next step, conditions, decisions, pods, last failure, events. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from graphpod_operator.cache.child import Child
from graphpod_operator.conditions.message import pod_of
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.explain.text import Ink, Paint, plain
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.terminal.values.drafts import Drafts
from graphpod_operator.terminal.values.fields import mapping, maps, text, whole
from graphpod_operator.terminal.values.service import ServiceCondition, ServiceState
from graphpod_operator.terminal.values.warmup import PodState
from graphpod_operator.terminal.views.next_step import WAIT, NextStep, next_step
from graphpod_policy import Phase

INDENT = 2
EVENTS = 8
"""Most events that are shown."""
DECISIONS = 16
PODS = 16
OPERATOR = "kubectl get pods -A -l app.kubernetes.io/name=graphpod-operator"
WELL = "True"
LACKS_RIGHT = "not read: your rights do not include it"
FALSE_IS_WELL = (
    *(ConditionType.Degraded, ConditionType.PolicyUpdateAvailable, ConditionType.EngineUpdateAvailable),
    *(ConditionType.Reconciling, ConditionType.Stalled),
)
"""Conditions that need nothing while they are False."""
LOOKED_AT = (
    *(ConditionType.Ready, ConditionType.Degraded, ConditionType.RouteReady, ConditionType.ScalingReady),
    *(ConditionType.MonitorReady, ConditionType.PolicyUpdateAvailable, ConditionType.EngineUpdateAvailable),
)
"""In this order the condition is sought that the verdict is about."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was read of one service; None where the user lacks the right. `drafts` is None for a service
    without speculative decoding, too.
    """

    raw: Raw
    revisions: Sequence[Child] | None
    pods: Sequence[PodState] | None
    events: Sequence[Raw] | None
    now: datetime
    drafts: Drafts | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is the matter, in one line, and the one next step. `exit_code`: 0 Ready as planned, 3 Ready with something
    less than requested, 4 not Ready.
    """

    exit_code: int
    reason: str
    line: str
    message: str
    step: NextStep


def verdict(service: ServiceState, pod: str = "") -> Verdict:
    """The verdict on a service; `pod` is the one that commands are about where the condition names none."""
    where = f"{service.namespace}/{service.name}"
    if service.breach:
        step = next_step(Reason.SpecTooLarge, service.namespace, service.name)
        return Verdict(4, Reason.SpecTooLarge.name, f"{where} is not Ready: SpecTooLarge", service.breach, step)
    if not service.conditions or service.observed < service.generation:
        behind = f"the status is about generation {service.observed} of the spec, which is at {service.generation}"
        what = behind if service.conditions else "no operator has written a status"
        step = NextStep("check that the operator runs, and see its log", OPERATOR)
        return Verdict(4, "NotReconciled", f"{where} is not Ready: no operator has processed its spec", what, step)
    ready = service.condition(ConditionType.Ready)
    found = next((one for kind in LOOKED_AT if (one := service.condition(kind)) and not _is_well(one)), None)
    if ready is None or ready.status != WELL:
        one = ready or ServiceCondition("Ready", "Unknown", "Unknown", "the status has no condition Ready", "", 0)
        stalled = service.condition(ConditionType.Stalled) is not None
        waits = " Waiting does not help." if stalled else ""
        return _of(4, f"{where} is not Ready: {one.reason}.{waits}", one, service, pod)
    if found is None:
        running = ", ".join(f"{phase.value} {service.policies[phase].effective or '-'}" for phase in Phase)
        line = f"{where} is Ready: {service.pods or '?'} pods serve; {running}; {service.captured or '?'} captured"
        return Verdict(0, ready.reason, line, "", NextStep("", ""))
    return _of(3, f"{where} is Ready, but {found.type}={found.status}: {found.reason}", found, service, pod)


def _of(code: int, line: str, one: ServiceCondition, service: ServiceState, pod: str) -> Verdict:
    step = NextStep("see the conditions", f"kubectl -n {service.namespace} describe gisvc {service.name}")
    if one.reason in Reason.__members__:
        # a group's last failure, whose pod this is, stays while its new pods wait for something else
        pod = pod_of(one.message) or pod
        known = next_step(Reason[one.reason], service.namespace, service.name, pod, one.message)
        step = known if known.command else NextStep("wait", _wait(service))
    return Verdict(code, one.reason, line, one.message, step)


def _wait(service: ServiceState) -> str:
    return WAIT.replace("-n NAMESPACE", f"-n {service.namespace}").replace("/NAME", f"/{service.name}")


def _is_well(one: ServiceCondition) -> bool:
    if one.type in FALSE_IS_WELL:
        return one.status != WELL
    if one.type == ConditionType.Ready and one.reason == Reason.Degraded.name:
        return False
    return one.status == WELL


def judged(found: Findings) -> Verdict:
    """The verdict on what was found."""
    pod = text(found.raw, "status", "lastFailure", "pod") or ""
    return verdict(ServiceState.of(found.raw), pod)


def page(found: Findings, width: int, paint: Paint = plain) -> str:
    """The page as text, ending with a newline."""
    service, said = ServiceState.of(found.raw), judged(found)
    ink = {0: Ink.Good, 3: Ink.Care}.get(said.exit_code, Ink.Bad)
    what = said.message.removesuffix(said.step.what).replace(f"; {said.step.what};", ";").rstrip("; ")
    lines = [*(paint(ink, line) for line in _wrapped(said.line, width, 0)), *_wrapped(what, width)]
    if said.step.command:
        lines += [
            "",
            *_wrapped(f"Next step: {said.step.words}", width, 0),
            " " * INDENT + paint(Ink.Strong, said.step.command),
        ]
    parts = (
        ("Conditions", _conditions(service, said, found.now, width, paint)),
        (_graphs_of(service), _graphs(found, service, width)),
        ("Pods", _pods(found, width, paint)),
        ("Last failure", _failure(found.raw, width)),
        ("Events", _events(found, width)),
    )
    for title, part in parts:
        lines += ["", paint(Ink.Strong, title), *part]
    return "\n".join(lines) + "\n"


def _wrapped(words: str, width: int, indent: int = INDENT, hang: int = 0) -> list[str]:
    lead = " " * indent
    return textwrap.wrap(words, width, initial_indent=lead, subsequent_indent=lead + " " * hang, break_on_hyphens=False)


def age(since: str, now: datetime) -> str:
    """Time since an RFC 3339 moment: 12s, 5m, 3h, 2d; empty where it is none."""
    try:
        seconds = (now - datetime.fromisoformat(since).astimezone(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return ""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def _conditions(service: ServiceState, said: Verdict, now: datetime, width: int, paint: Paint) -> Iterator[str]:
    """A line for each; a message that was printed is not printed again."""
    if not service.conditions:
        yield "  none"
        return
    printed = {said.message}
    longest = max(len(one.type) for one in service.conditions)
    for one in service.conditions:
        head = f"  {one.type:<{longest}}  {one.status:<7}  {one.reason}"
        since = age(one.since, now)
        line = f"{head}  {since} ago" if since else head
        yield line if _is_well(one) else paint(Ink.Care, line)
        if not _is_well(one) and one.message not in printed and one.type != ConditionType.Reconciling:
            printed.add(one.message)
            yield from _wrapped(one.message, width, 4)


def _graphs_of(service: ServiceState) -> str:
    """The title of what the status says of graphs: it is about the spec that was accepted last."""
    refused = any(one.type == ConditionType.Accepted and one.status == "False" for one in service.conditions)
    return "Graphs, of the spec accepted last" if refused else "Graphs"


def _graphs(found: Findings, service: ServiceState, width: int) -> Iterator[str]:
    graph = mapping(found.raw, "status", "graph")
    if not graph:
        yield "  no plan in the status"
    for phase in Phase if graph else ():
        one = service.policies[phase]
        sizes = f", {one.captured}/{one.sizes} captured" if one.sizes else ""
        check = f", self-check {one.self_check}" if one.self_check else ""
        runs = one.effective or "nothing yet"
        words = f"{phase.value:<8} requested {one.requested}, planned {one.planned}, running {runs}{sizes}{check}"
        yield from _wrapped(words, width, 2, 9)
    if found.drafts is not None:
        yield from _wrapped(f"drafts   {found.drafts.words}", width, 2, 9)
        if found.drafts.advice:
            yield from _wrapped(f"→ {found.drafts.advice}", width, 4, 2)
    decisions = _decisions(graph)
    for (rule, outcome, because, hint), phases in list(decisions.items())[:DECISIONS]:
        yield from _wrapped(f"· {rule} ({', '.join(phases)}: {outcome}): {because}", width, 2, 2)
        if hint:
            yield from _wrapped(f"→ {hint}", width, 4, 2)
    if len(decisions) > DECISIONS:
        yield f"  and {len(decisions) - DECISIONS} more decisions: kubectl describe gisvc"
    yield from _wrapped(f"pinned   {_revision(found)}", width, 2, 9)


def _decisions(graph: Raw) -> dict[tuple[str, str, str, str], list[str]]:
    """The decisions, each with the phases that it is about: rule, outcome, why, what to change."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for one in maps(graph, "decisions"):
        rule, outcome, because, hint = (text(one, key) or "" for key in ("rule", "outcome", "because", "hint"))
        found.setdefault((rule, outcome, because, hint), []).append(text(one, "phase") or "?")
    return found


def _revision(found: Findings) -> str:
    running = text(found.raw, "status", "revision")
    config = text(found.raw, "status", "graph", "configHash")
    if found.revisions is None:
        return f"revision {running or '-'}; ControllerRevisions {LACKS_RIGHT}"
    kept = ", ".join(
        one.name + (f" (corrupt: {one.kept.trouble})" if one.kept and one.kept.trouble else "")
        for one in found.revisions
    )
    return f"revision {running or '-'}, configuration {config or '-'}; kept: {kept or 'no ControllerRevision'}"


def _pods(found: Findings, width: int, paint: Paint) -> Iterator[str]:
    if found.pods is None:
        yield f"  {LACKS_RIGHT}"
        return
    if not found.pods:
        yield "  none"
    for one in found.pods[:PODS]:
        for line in _wrapped(f"{one.pod.name}  {one.kubernetes}", width, 2, 2):
            yield line if one.pod.ready else paint(Ink.Care, line)
        if one.warmup:
            yield from _wrapped(f"warm-up  {one.warmup}", width, 4, 9)
        if one.stages:
            yield from _wrapped(f"stages   {one.stages}", width, 4, 9)
        if one.start is not None and one.start.failure is not None:
            yield from _wrapped(f"failure  {one.start.failure.reason}: {one.start.failure.message}", width, 4, 9)
    if len(found.pods) > PODS:
        yield f"  and {len(found.pods) - PODS} more"


def _failure(raw: Raw, width: int) -> list[str]:
    failure = mapping(raw, "status", "lastFailure")
    if not failure:
        return ["  none that is unresolved"]
    code, restarts = whole(failure, "exitCode"), whole(failure, "restarts")
    of = f"pod {pod}" if (pod := text(failure, "pod")) else "no pod can be created"
    ended = "" if code is None else f", exit code {code}, {restarts or 0} restarts"
    head = f"{text(failure, 'reason') or '?'} ({of}{ended})"
    return [*_wrapped(head, width), *_wrapped(text(failure, "message") or "", width, 4)]


def _events(found: Findings, width: int) -> Iterator[str]:
    if found.events is None:
        yield f"  {LACKS_RIGHT}"
        return
    rows = recent(found.events)
    if not rows:
        yield "  none"
    for one in rows:
        since = age(_when(one), found.now)
        times = count if (count := whole(one, "count") or 1) > 1 else 0
        often = f" ({times} times)" if times else ""
        head = f"{since:>4}  {text(one, 'type') or '-':<7}  {text(one, 'reason') or '-'}{often}"
        yield from _wrapped(f"{head}: {text(one, 'message') or ''}", width, 2, 15)


def recent(events: Sequence[Raw]) -> list[Raw]:
    """The newest events first, at most EVENTS."""
    return sorted(events, key=_when, reverse=True)[:EVENTS]


def _when(one: Raw) -> str:
    times = (text(one, "lastTimestamp"), text(one, "eventTime"), text(one, "metadata", "creationTimestamp"))
    return next(filter(None, times), "")


def as_dict(found: Findings) -> dict[str, Any]:
    """Plain values, for `-o json`."""
    service, said = ServiceState.of(found.raw), judged(found)
    events = None if found.events is None else recent(found.events)
    return {
        "namespace": service.namespace,
        "name": service.name,
        "verdict": said.line,
        "exitCode": said.exit_code,
        "reason": said.reason,
        "message": said.message,
        "nextStep": {"what": said.step.words, "command": said.step.command} if said.step.command else None,
        "phase": service.phase,
        "conditions": list(maps(found.raw, "status", "conditions")),
        "graph": mapping(found.raw, "status", "graph") or None,
        "drafts": found.drafts.as_dict() if found.drafts is not None else None,
        "revision": text(found.raw, "status", "revision"),
        "controllerRevisions": None if found.revisions is None else [one.name for one in found.revisions],
        "pods": None if found.pods is None else [one.as_dict() for one in found.pods],
        "lastFailure": mapping(found.raw, "status", "lastFailure") or None,
        "events": events
        and [{key: text(one, key) for key in ("type", "reason", "message")} | {"at": _when(one)} for one in events],
    }
