"""Who decides on the number of pods, and how that passes from one to the other without a pod less in between. Pure.

A server-side apply that drops `spec.replicas` leaves the field to the others that claim it; without any, the API
server sets it to 1. So before it is dropped, a second field manager claims what is. An autoscaler that is to go loses
the field before it goes. Each list of writes follows from what is there alone: where one operator ended between two of
them, the next goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.service import Service
from graphpod_operator.kube.resources import AUTOSCALERS, WORKLOADS, Resource
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.refused import Refused
from graphpod_operator.plan.writes import Create, Delete, HandOver, Look, Update, Write, other_workload
from graphpod_operator.plan.writes import writes as plain


def writes(found: Service, desired: Desired, look: Look) -> tuple[Write, ...] | Refused:
    """The planner's writes, with those about the number of pods in the order in which nothing is lost."""
    needed = plain(found, desired, look)
    if desired.weights is not None and not any(one.resource in WORKLOADS for one in desired.children):
        return needed  # its pods wait for weights
    if isinstance(needed, Refused) or not (_scales(desired) or any(_is_about(AUTOSCALERS, one) for one in needed)):
        return needed
    workload = workload_of(desired)
    live = look(workload.resource, workload.namespace, workload.name)
    ordered = [write for write in needed if _is_about((workload.resource, *AUTOSCALERS), write)]
    retired = [write for write in needed if isinstance(write, Delete) and _is_about(WORKLOADS, write)]
    rest = [write for write in needed if write not in ordered and write not in retired]
    before = other_workload(found, workload.resource, look)
    steps = _take_over(desired, live, before, ordered) if _scales(desired) else _take_back(desired, live, ordered)
    return (*rest, *steps, *retired)


def workload_of(desired: Desired) -> DesiredChild:
    """The child that makes the pods."""
    return next(child for child in desired.children if child.resource in WORKLOADS)


def passes(desired: Desired, write: Write) -> bool:
    """Whether a write passes the number of pods on: then it has to be the number that is, not one heard of before."""
    leaves = isinstance(write, Delete) and write.child.resource in AUTOSCALERS
    return isinstance(write, HandOver) or leaves or goes_on(desired, (write,))


def goes_on(desired: Desired, done: Iterable[Write]) -> bool:
    """Whether these writes gave the Deployment a number of pods that an autoscaler is to take over."""
    applied = (one.wanted for one in done if isinstance(one, Create | Update))
    claims = ("replicas" in one.body["spec"] for one in applied if one.resource in WORKLOADS)
    return _scales(desired) and any(claims)


def _take_over(desired: Desired, live: Child | None, before: Child | None, needed: list[Write]) -> Iterator[Write]:
    """To an autoscaler: the other kind goes, the field gets a second owner, the autoscaler comes, we drop the field.
    `before` made the pods until spec.parallelism.nodes changed the kind: the new ones are as many.
    """
    workload = workload_of(desired)
    removals = [write for write in needed if isinstance(write, Delete)]
    coming = [write for write in needed if _is_about(AUTOSCALERS, write) and write not in removals]
    yield from removals
    if live is None:
        there = before.replicas_claim.replicas if before is not None else 0
        yield Create(_with(workload, max(desired.fewest, there)))
        yield from coming  # there is no number yet to lose; and one of somebody else's is to stop both
        return
    count, ours, held = live.replicas_claim
    if count == 0:  # no autoscaler wakes it: suspended until now, or somebody scaled what has its autoscaler
        edited = live.edited or not any(isinstance(write, Create) for write in coming)
        yield Update(_with(workload, desired.fewest), live.uid, edited, live.version)
        return
    if ours and not held:
        yield HandOver(live, count)
    yield from coming
    if ours or live.edited or live.owned != workload.owned:
        # what the autoscaler has written already is no edit by somebody
        yield Update(workload, live.uid, live.edited and not ours and live.owned != workload.owned)


def _take_back(desired: Desired, live: Child | None, needed: list[Write]) -> Iterator[Write]:
    """From an autoscaler. Suspended: it goes, then the pods. Else the number that is becomes ours, and it goes."""
    removals = [write for write in needed if isinstance(write, Delete)]
    workload = workload_of(desired)
    if live is not None and removals and desired.replicas:
        count = live.replicas_claim.replicas
        kept = _with(workload, count)
        if live.owned != kept.owned:
            yield Update(kept, live.uid, live.edited, live.version)
        yield from removals
        if kept.owned != workload.owned:
            yield Update(workload, live.uid, edited=False)
        return
    yield from removals
    yield from (write for write in needed if write not in removals)


def _scales(desired: Desired) -> bool:
    return desired.replicas is None


def _is_about(kinds: Iterable[Resource], write: Write) -> bool:
    match write:
        case Create(wanted) | Update(wanted):
            return wanted.resource in kinds
        case Delete(child) | HandOver(child):
            return child.resource in kinds


def _with(workload: DesiredChild, replicas: int) -> DesiredChild:
    """The Deployment with this number of pods."""
    body: dict[str, Any] = {**workload.body, "spec": {**workload.body["spec"], "replicas": replicas}}
    return DesiredChild.of(workload.resource, body)
