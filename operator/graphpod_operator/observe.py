"""Projections: of each object the operator watches, only what it decides on. Bodies are never kept."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, cast

import msgspec

from graphpod_operator import bounds
from graphpod_operator.api import GROUP, KIND
from graphpod_operator.api_status import MESSAGE_MAX
from graphpod_operator.gateways import Route
from graphpod_operator.ownership import claims, fingerprint, mark, owned_fields
from graphpod_operator.port import Raw
from graphpod_operator.render.controllerrevision import unreadable
from graphpod_operator.render.deployment import CONTAINER
from graphpod_operator.render.subject import (
    ADOPT_ANNOTATION,
    DEATHS_ANNOTATION,
    HASH_ANNOTATION,
    OWNER_LABEL,
    PAUSED_ANNOTATION,
    QUEUE_LABEL,
    REVISION_ANNOTATION,
    TEMPLATE_ANNOTATION,
)
from graphpod_operator.resource import AUTOSCALERS, Resource

_QUICK = 1
"""zlib's level for what is kept: somewhat larger, and sooner done."""
_WORKS = ("AbleToScale", "ScalingActive", "Ready")
"""Conditions of an autoscaler of either kind that are True while it works."""


ADOPT_MAX = 253
"""Characters of the annotation graphpod.dev/adopt that count: an annotation of the Deployment repeats them."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """An InferenceService's name: what the queue holds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Service:
    """An InferenceService as stored: its spec and status are what the operator works on, so they are kept."""

    key: Key
    uid: str
    version: int
    generation: int
    deleting: bool
    spec: Raw
    status: Raw
    paused: bool = False
    """Its user wants to be told how it stands, and nothing but its status written."""
    queue: str | None = None
    """The Kueue queue that its pods wait in."""
    adopt: str | None = None
    """The revision that its user takes over from this operator."""
    breach: str | None = None
    """Which bound it breaks; its spec was not read then."""

    @classmethod
    def of(cls, raw: Raw) -> Service:
        """The projection of an InferenceService."""
        metadata, spec = raw["metadata"], raw.get("spec") or {}
        breach = raw.get(bounds.BREACH) or bounds.breach(spec)
        annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        return cls(
            key=Key(metadata["namespace"], metadata["name"]),
            uid=metadata["uid"],
            version=int(metadata["resourceVersion"]),
            generation=metadata.get("generation", 1),
            deleting="deletionTimestamp" in metadata,
            spec=spec if breach is None else {},
            status=_believed(raw.get("status") or {}),
            paused=annotations.get(PAUSED_ANNOTATION) == "true",
            queue=labels.get(QUEUE_LABEL),
            adopt=adopt[:ADOPT_MAX] if (adopt := annotations.get(ADOPT_ANNOTATION)) is not None else None,
            breach=breach,
        )

    def asks_as(self, other: Service) -> bool:
        """Whether its user asks for the same as in `other`: all but version and status, which is ours, are equal."""
        return replace(self, version=other.version, status=other.status) == other


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str
    lastTransitionTime: Annotated[str, msgspec.Meta(max_length=64)] = ""  # written again as it is


class _Phase(msgspec.Struct, frozen=True):
    effective: str | None = None


class _Graph(msgspec.Struct, frozen=True):
    prefill: _Phase = _Phase()
    decode: _Phase = _Phase()


class _Status(msgspec.Struct, frozen=True):
    """What of a status is read again, and of which type."""

    conditions: tuple[_Condition, ...] = ()
    graph: _Graph = _Graph()


def _believed(status: Any) -> Raw:
    """A status as it was read; one that no operator wrote so, by an edit or from a backup of another version, counts as
    none, and is written anew.
    """
    try:
        msgspec.convert(status, _Status)
    except msgspec.ValidationError:
        return {}
    return cast(Raw, status)


class ReplicasClaim(NamedTuple):
    """How many pods a Deployment asks for, and who says so: we, or another field manager, or both."""

    replicas: int
    ours: bool
    held: bool

    @classmethod
    def of(cls, raw: Raw) -> ReplicasClaim:
        """The claims on a Deployment's replicas, which are 1 where nobody says so."""
        return cls((raw.get("spec") or {}).get("replicas", 1), *claims(raw, "spec", "replicas"))


NO_CLAIM = ReplicasClaim(0, False, False)
"""Of kinds that have no replicas."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What a Deployment's controller reports."""

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

    @classmethod
    def of(cls, raw: Raw) -> Rollout:
        """The report in a Deployment's status."""
        status = raw.get("status") or {}
        conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
        failure = conditions.get("ReplicaFailure", {})
        return cls(
            observed=status.get("observedGeneration", 0) >= raw["metadata"].get("generation", 1),
            replicas=status.get("replicas", 0),
            updated=status.get("updatedReplicas", 0),
            ready=status.get("readyReplicas", 0),
            available=status.get("availableReplicas", 0),
            refused=failure.get("message", "") if failure.get("status") == "True" else None,
            overdue=conditions.get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded",
            asked=ReplicasClaim.of(raw).replicas,
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """What a ControllerRevision keeps: the memory that the operator decides by, and so the one body that stays, packed.

    `number` tells which is the newest, `trouble` why it is no memory at all.
    """

    number: int
    packed: bytes
    trouble: str | None

    @classmethod
    def of(cls, raw: Raw) -> Kept:
        """The memory in a ControllerRevision."""
        data = raw.get("data")
        trouble = unreadable(data)
        texts = {} if trouble or data is None else {name: text for name, text in data.items() if isinstance(text, str)}
        return cls(raw.get("revision", 0), zlib.compress(msgspec.json.encode(texts), _QUICK), trouble)

    @property
    def data(self) -> Mapping[str, str]:
        """What was kept; only of one that is without trouble."""
        data: Mapping[str, str] = msgspec.json.decode(zlib.decompress(self.packed))
        return data


class Owner(NamedTuple):
    """A controlling owner. Its group counts: others have kinds of our kind's name."""

    group: str
    kind: str
    name: str
    uid: str

    @classmethod
    def of(cls, metadata: Raw) -> Owner | None:
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
    controller: Owner | None
    """Its controlling owner."""
    deleting: bool
    owned: str
    """Fingerprint of the fields that are ours."""
    applied: str
    """The same as it was when we applied them last."""
    rollout: Rollout | None
    kept: Kept | None = None
    revision: str = ""
    """The rendering that a Deployment says it was made from."""
    replicas_claim: ReplicasClaim = NO_CLAIM
    trouble: str | None = None
    """Why an autoscaler cannot scale, in its own words; empty while it has said nothing at all."""
    deaths: str | None = None
    """What is remembered, at a Deployment, of starts that died in a capture."""
    route: Route | None = None
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
        """The projection of a child. Whatever stands in it, this raises nothing: anybody may write one."""
        try:
            return cls._of(resource, raw)
        except (RecursionError, AttributeError, LookupError, TypeError, ValueError) as error:
            return cls._of(resource, bounds.stripped(raw, f"the object cannot be read: {error}"[:MESSAGE_MAX]))

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
            controller=Owner.of(metadata),
            deleting="deletionTimestamp" in metadata,
            owned=fingerprint(owned_fields(raw)),
            applied=mark(raw),
            rollout=Rollout.of(raw) if resource is Resource.Deployment else None,
            kept=Kept.of(raw) if resource is Resource.ControllerRevision else None,
            revision=(metadata.get("annotations") or {}).get(REVISION_ANNOTATION, ""),
            replicas_claim=ReplicasClaim.of(raw) if resource is Resource.Deployment else NO_CLAIM,
            trouble=_trouble(raw) if resource in AUTOSCALERS else None,
            deaths=(metadata.get("annotations") or {}).get(DEATHS_ANNOTATION),
            route=Route.of(raw) if resource is Resource.HTTPRoute else None,
            breach=raw.get(bounds.BREACH),
            finalizers=tuple(metadata.get("finalizers") or ()) if "deletionTimestamp" in metadata else (),
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended."""

    code: int
    reason: str
    message: str
    """First line of its termination message."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a service. `container` is empty until the engine container runs for the first time."""

    key: Key | None
    namespace: str
    name: str
    uid: str
    version: int
    ip: str
    config_hash: str
    template: str
    """Fingerprint of the template it was made from."""
    deleting: bool
    gone: str | None
    """Why it ended for good, though the object is still there: evicted, refused by its node, its node shut down."""
    ready: bool
    placed: bool
    """Whether it has a node."""
    scheduling: str | None
    """The scheduler's message while it finds no node."""
    gates: tuple[str, ...]
    """What holds it back from the scheduler."""
    container: str
    running: bool
    restarts: int
    waiting: tuple[str, str] | None
    """(reason, message) while the engine container waits."""
    unprepared: str | None
    """Since when (RFC 3339) its node mounts its volumes and makes its sandbox; None once that is done, or unknown."""
    ended: Ended | None
    """How the engine container's current or previous run ended."""
    breach: str | None = None
    """Which bound it breaks; nothing but its metadata was read then."""

    @property
    def failed_start(self) -> bool:
        """Whether it has ended without being told to, and goes on trying."""
        return self.ended is not None and not (self.ready or self.deleting or self.gone is not None)

    @classmethod
    def of(cls, raw: Raw) -> Pod:
        """The projection of a pod."""
        metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        annotations = metadata.get("annotations") or {}
        conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
        engine: Raw = next((entry for entry in status.get("containerStatuses") or () if entry["name"] == CONTAINER), {})
        state = engine.get("state") or {}
        scheduled, prepared = (conditions.get(kind, {}) for kind in ("PodScheduled", "PodReadyToStartContainers"))
        waiting = state.get("waiting")
        ended = state.get("terminated") or (engine.get("lastState") or {}).get("terminated")
        return cls(
            key=_pod_owner(metadata),
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            version=int(metadata["resourceVersion"]),
            ip=status.get("podIP", ""),
            config_hash=annotations.get(HASH_ANNOTATION, ""),
            template=annotations.get(TEMPLATE_ANNOTATION, ""),
            deleting="deletionTimestamp" in metadata,
            gone=_gone(status),
            ready=conditions.get("Ready", {}).get("status") == "True",
            placed=bool(spec.get("nodeName")),
            scheduling=scheduled.get("message", "") if scheduled.get("status") == "False" else None,
            gates=tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
            container=engine.get("containerID", ""),
            running="running" in state,
            restarts=engine.get("restartCount", 0),
            waiting=(waiting.get("reason", ""), waiting.get("message", "")) if waiting else None,
            unprepared=prepared.get("lastTransitionTime") if prepared.get("status") == "False" else None,
            ended=_ended(ended) if ended else None,
            breach=raw.get(bounds.BREACH),
        )


Projection = Service | Child | Pod


def project(resource: Resource, raw: Raw) -> Projection:
    """The projection of any watched object."""
    if resource is Resource.InferenceService:
        return Service.of(raw)
    if resource is Resource.Pod:
        return Pod.of(raw)
    return Child.of(resource, raw)


def _trouble(raw: Raw) -> str | None:
    """The message of the first condition of an autoscaler that says that it cannot do its work."""
    told = (raw.get("status") or {}).get("conditions") or ()
    failing = (row for row in told if row["type"] in _WORKS and row["status"] != "True")
    return next((row.get("message") or row.get("reason") or row["type"] for row in failing), None if told else "")


def _pod_owner(metadata: Raw) -> Key | None:
    """The service a pod runs for: its label, if the ReplicaSet that controls it is one of that service's Deployment."""
    labels = metadata.get("labels") or {}
    name, template = labels.get(OWNER_LABEL), labels.get("pod-template-hash")
    controller = Owner.of(metadata)
    if not name or controller is None or controller[:3] != ("apps", "ReplicaSet", f"{name}-{template}"):
        return None
    return Key(metadata["namespace"], name)


def _gone(status: Raw) -> str | None:
    if status.get("phase") not in ("Failed", "Succeeded"):
        return None
    return ": ".join(filter(None, (status.get("reason") or status["phase"], status.get("message"))))


def _ended(terminated: Raw) -> Ended:
    lines = (terminated.get("message") or "").strip().splitlines()
    return Ended(terminated.get("exitCode", 0), terminated.get("reason", ""), lines[0] if lines else "")


def is_ours(found: Service, live: Child) -> bool:
    """Whether a live object is controlled by this very service, and stays."""
    owner = live.controller
    return owner is not None and owner.is_service(found.key.name) and owner.uid == found.uid and not live.deleting
