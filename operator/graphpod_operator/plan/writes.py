"""The writes that a plan takes: the wanted objects compared with the live ones. Pure; the `applier` carries them
out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.resources import AT_TIMES, WORKLOADS, Resource, workload_name
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.refused import Refused
from graphpod_operator.plan.refused_field import blamed, held
from graphpod_operator.render.owner import Body
from graphpod_operator.render.workload.rolling import surges


@dataclass(frozen=True, slots=True)
class Create:
    """A child that does not exist. It is applied after a live look, without force, and to no object that exists."""

    wanted: DesiredChild


@dataclass(frozen=True, slots=True)
class Update:
    """A child of ours that differs from the plan. It is applied with force, to this uid only, and where a version is
    given, to what it was at that version. `edited`: it differs from what we applied last too, so somebody changed it.
    """

    wanted: DesiredChild
    uid: str
    edited: bool
    version: int | None = None

    @classmethod
    def of(cls, wanted: DesiredChild, live: Child) -> Update | None:
        """What it takes to bring a live child in order; None when it is."""
        return cls(wanted, live.uid, live.edited) if live.edited or live.owned != wanted.owned else None


@dataclass(frozen=True, slots=True)
class HandOver:
    """The number of pods of this Deployment is claimed by a second field manager, before we cease to."""

    child: Child
    replicas: int

    @property
    def body(self) -> Body:
        """What that manager applies."""
        kind, child = self.child.resource, self.child
        metadata = {"name": child.name, "namespace": child.namespace, "uid": child.uid}
        spec = {"replicas": self.replicas}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True)
class Delete:
    """A child of ours that the spec wants no more, or that can be no other way than it is. It is deleted by its uid,
    after a live look.
    """

    child: Child


Write = Create | Update | Delete | HandOver


def not_applied(message: str) -> Refused:
    """What it means that the API server refused one of the children, with the server's words."""
    reason = Reason.ObjectQuotaExceeded if QUOTA.search(message) is not None else Reason.ApplyRefused
    return Refused(*(held(message) or blamed(message) or (reason, message)))


QUOTA = re.compile(r"exceeded quota: |failed quota: ")
"""How the admission of ResourceQuota begins, whatever the kind."""
Look = Callable[[Resource, str, str], Child | None]
"""Finds a child by kind, namespace and name."""


def writes(found: Service, desired: Desired, look: Look) -> tuple[Write, ...] | Refused:
    """The writes that make the children as desired; none when they are. `look` finds a child by name.

    One child with another owner stops all of them: a half-applied service is of no use.
    """
    needed: list[Write] = []
    for wanted in desired.children:
        live = look(wanted.resource, wanted.namespace, wanted.name)
        if live is None and (taken := _name_taken(wanted, look)) is not None:
            return taken
        if live is None:
            needed.append(Create(wanted))
        elif (stranger := foreign(found, wanted, live)) is not None:
            return stranger
        elif live.kept is not None and live.kept.trouble is not None:
            needed.append(Delete(live))  # it cannot be changed; what it should hold is written once it is gone
        elif (repair := Update.of(wanted, live)) is not None:
            needed.append(repair)
    return (*needed, *_retired(found, desired, look), *_removals(found, desired, look))


def _name_taken(wanted: DesiredChild, look: Look) -> Refused | None:
    """That a LeaderWorkerSet would find another Service where its pods' addresses are to be."""
    if wanted.resource is not Resource.LeaderWorkerSet:
        return None
    other = look(Resource.Service, wanted.namespace, wanted.name)
    if other is None:
        return None
    what = f"Service {wanted.namespace}/{wanted.name} exists and is controlled by {other.controller}"
    return Refused(Reason.NameCollision, f"{what}; the pods of {wanted} need a headless one of that name")


def _retired(found: Service, desired: Desired, look: Look) -> Iterator[Delete]:
    """What made the pods before spec.parallelism.nodes changed the kind of that. It goes after the other has been
    written: one that the API server refuses leaves what serves. Where new pods come before the old ones go, it stays
    until as many of the new are ready as are to be.
    """
    wanted = next((child for child in desired.children if child.resource in WORKLOADS), None)
    live = other_workload(found, wanted.resource, look) if wanted is not None else None
    if wanted is not None and live is not None and not (surges(wanted.body) and not _serves(wanted, look)):
        yield Delete(live)


def other_workload(found: Service, kind: Resource, look: Look) -> Child | None:
    """The service's object of the other kind that makes pods, while there is one."""
    kinds = (other for other in WORKLOADS if other is not kind)
    there = (look(other, found.key.namespace, workload_name(other, found.key.name)) for other in kinds)
    return next((live for live in there if live is not None and is_ours(found, live)), None)


def _serves(wanted: DesiredChild, look: Look) -> bool:
    """Whether all pods of a workload, which was made a while ago, are ready."""
    live = look(wanted.resource, wanted.namespace, wanted.name)
    rollout = live.rollout if live is not None else None
    return rollout is not None and rollout.observed and min(rollout.updated, rollout.available) >= rollout.asked


def _removals(found: Service, desired: Desired, look: Look) -> Iterator[Delete]:
    """What the spec wanted once, and now does not."""
    kinds = {wanted.resource for wanted in desired.children} | {one.resource for one in desired.withheld}
    for resource in AT_TIMES:
        live = look(resource, found.key.namespace, found.key.name) if resource not in kinds else None
        if live is not None and is_ours(found, live):
            yield Delete(live)


def foreign(found: Service, wanted: DesiredChild, live: Child) -> Refused | None:
    """Why a live object may not be written: it is not controlled by this very service, or it is going away. One that
    was applied for a service of this name may be its own, or that of a backup: who removed the owner decides.
    """
    owner = live.controller
    if owner is not None and owner.is_service(found.key.name):
        if owner.uid != found.uid or live.deleting:
            waits = f", and waits for its finalizers: {', '.join(live.finalizers)}" if live.finalizers else ""
            return Refused(Reason.PreviousDeleting, f"{wanted} still exists{waits}")
        return None
    if owner is None and live.applied and live.key == found.key:
        return Refused(Reason.OwnerMissing, f"{wanted} has no owner reference to the service any more")
    whose = f"controlled by {owner}" if owner is not None else "not made by graphpod"
    return Refused(Reason.NameCollision, f"{wanted} exists and is {whose}; the operator leaves it untouched")
