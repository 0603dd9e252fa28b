"""The projection of a child: whose it is, whether it was changed, and what its controller reports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from graphpod_operator.api.names import CAPTURE_FAILURES_ANNOTATION, GROUP, KIND, OWNER_LABEL, REVISION_ANNOTATION
from graphpod_operator.cache import shape
from graphpod_operator.cache.controller_revision import StoredRevision
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.route_status import RouteStatus
from graphpod_operator.kube import bounds
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.kube.field_ownership import claims, fingerprint, mark, owned_fields
from graphpod_operator.kube.resources import AUTOSCALERS, WORKLOADS, Resource

_WORKS = ("AbleToScale", "ScalingActive", "Ready")
"""Conditions of an autoscaler of either kind that are True while it works."""


class ReplicasClaim(NamedTuple):
    """How many replicas a Deployment or LeaderWorkerSet asks for, and who says so: we, or another field manager, or
    both.
    """

    replicas: int
    ours: bool
    held: bool

    @classmethod
    def of(cls, raw: Raw) -> ReplicasClaim:
        """The claims on its replicas, which are 1 by default."""
        return cls((raw.get("spec") or {}).get("replicas", 1), *claims(raw, "spec", "replicas"))


NO_CLAIM = ReplicasClaim(0, False, False)
"""Of kinds that have no replicas."""


@dataclass(frozen=True, slots=True)
class DeploymentRollout:
    """What a Deployment's controller reports, or that of a LeaderWorkerSet, whose replicas are groups of pods."""

    observed: bool
    """Whether the report is about the current generation."""
    replicas: int
    updated: int
    ready: int
    available: int
    refused: str | None
    """Why pods cannot be created, in the controller's words."""
    overdue: bool = False
    """Whether progressDeadlineSeconds passed without a pod that got created or Ready."""
    asked: int = 1
    """Pods that it is to have, whoever decided so."""
    may_surge: bool = True
    """Whether its controller can make a second replica before the only one goes."""
    complete: bool = False
    """Whether its latest rollout ended well, whatever became of its pods since."""

    @classmethod
    def of_groups(cls, raw: Raw) -> DeploymentRollout:
        """The report in a LeaderWorkerSet's status: a group is ready when all of its pods are. It does not say why no
        pod can be created, or how long nothing has come on. Versions before 0.9 do not say of which generation it is,
        and do not begin a rollout of the only group where it may not be away.
        """
        status = raw.get("status") or {}
        ready, generation = status.get("readyReplicas", 0), raw["metadata"].get("generation", 1)
        return cls(
            observed=status.get("observedGeneration", generation) >= generation,
            may_surge="observedGeneration" in status or not status.get("replicas"),
            replicas=status.get("replicas", 0),
            updated=status.get("updatedReplicas", 0),
            ready=ready,
            available=ready,
            refused=None,
            asked=ReplicasClaim.of(raw).replicas,
        )

    @classmethod
    def of(cls, raw: Raw) -> DeploymentRollout:
        """The report in a Deployment's status."""
        status = raw.get("status") or {}
        conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
        failure, progress = conditions.get("ReplicaFailure", {}), conditions.get("Progressing", {}).get("reason")
        return cls(
            observed=status.get("observedGeneration", 0) >= raw["metadata"].get("generation", 1),
            replicas=status.get("replicas", 0),
            updated=status.get("updatedReplicas", 0),
            ready=status.get("readyReplicas", 0),
            available=status.get("availableReplicas", 0),
            refused=failure.get("message", "") if failure.get("status") == "True" else None,
            overdue=progress == "ProgressDeadlineExceeded",
            asked=ReplicasClaim.of(raw).replicas,
            complete=progress == "NewReplicaSetAvailable",
        )


_ROLLOUTS = {
    Resource.Deployment: DeploymentRollout.of,
    Resource.LeaderWorkerSet: DeploymentRollout.of_groups,
}


_SHAPES: dict[Resource, type[shape.Object]] = {
    **dict.fromkeys(WORKLOADS, shape.Workload),
    **dict.fromkeys(AUTOSCALERS, shape.Autoscaler),
    Resource.HTTPRoute: shape.HTTPRoute,
}
"""Of the kinds of which more than the metadata is read."""


class ControllerRef(NamedTuple):
    """A controlling owner. Its group counts: others have kinds of our kind's name."""

    group: str
    kind: str
    name: str
    uid: str

    @classmethod
    def of(cls, metadata: Raw) -> ControllerRef | None:
        """The owner among an object's that controls it."""
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller"):
                return cls(owner["apiVersion"].rpartition("/")[0], owner["kind"], owner["name"], owner["uid"])
        return None

    def is_service(self, name: str) -> bool:
        """Whether it is, or was, an InferenceService of ours of this name."""
        return (self.group, self.kind, self.name) == (GROUP, KIND, name)

    def __str__(self) -> str:
        return f"{self.kind}{'.' if self.group else ''}{self.group} {self.name}"


@dataclass(frozen=True, slots=True)
class Child:
    """An object of one of the kinds we apply."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    version: int
    key: Key | None
    """The service its label names."""
    controller: ControllerRef | None
    """Its controlling owner."""
    deleting: bool
    owned: str
    """Fingerprint of the fields that are ours."""
    applied: str
    """The same as it was when we applied them last."""
    rollout: DeploymentRollout | None
    kept: StoredRevision | None = None
    revision: str = ""
    """The rendering that a Deployment or LeaderWorkerSet says it was made from."""
    replicas_claim: ReplicasClaim = NO_CLAIM
    trouble: str | None = None
    """Why an autoscaler cannot scale, in its own words; empty while it has said nothing at all."""
    capture_failures: str | None = None
    """What is remembered, at a Deployment or LeaderWorkerSet, of starts that died in a capture."""
    route: RouteStatus | None = None
    """What an HTTPRoute leads to, and what gateways say of it."""
    breach: str | None = None
    """Which bound it breaks; nothing but its metadata was read then."""
    finalizers: tuple[str, ...] = ()
    """What keeps it from going while it is being deleted."""

    @property
    def edited(self) -> bool:
        """Whether somebody changed fields that are ours since we applied them."""
        return self.applied != self.owned

    @classmethod
    def of(cls, resource: Resource, raw: Raw) -> Child:
        """The projection of a child."""
        return shape.projected(raw, _SHAPES.get(resource, shape.Object), partial(cls._of, resource))

    @classmethod
    def _of(cls, resource: Resource, raw: Raw) -> Child:
        metadata = raw["metadata"]
        name = (metadata.get("labels") or {}).get(OWNER_LABEL)
        return cls(
            resource=resource,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            version=int(metadata["resourceVersion"]),
            key=Key(metadata["namespace"], name) if name else None,
            controller=ControllerRef.of(metadata),
            deleting="deletionTimestamp" in metadata,
            owned=fingerprint(owned_fields(raw)),
            applied=mark(raw),
            rollout=_ROLLOUTS[resource](raw) if resource in _ROLLOUTS else None,
            kept=StoredRevision.of(raw) if resource is Resource.ControllerRevision else None,
            revision=(metadata.get("annotations") or {}).get(REVISION_ANNOTATION, ""),
            replicas_claim=ReplicasClaim.of(raw) if resource in WORKLOADS else NO_CLAIM,
            trouble=_trouble(raw) if resource in AUTOSCALERS else None,
            capture_failures=(metadata.get("annotations") or {}).get(CAPTURE_FAILURES_ANNOTATION),
            route=RouteStatus.of(raw) if resource is Resource.HTTPRoute else None,
            breach=raw.get(bounds.BREACH),
            finalizers=tuple(metadata.get("finalizers") or ()) if "deletionTimestamp" in metadata else (),
        )


def _trouble(raw: Raw) -> str | None:
    """The message of the first condition of an autoscaler that says that it cannot do its work."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    failing = (row for row in conditions if row["type"] in _WORKS and row["status"] != "True")
    first = (row.get("message") or row.get("reason") or row["type"] for row in failing)
    return next(first, None if conditions else "")
