"""What is read of each watched kind, and of which type: a table of structs. Pure.

The API server holds its own kinds to their types. Those of others (HTTPRoute, LeaderWorkerSet, ScaledObject) it holds
to whatever CRD is installed, and an object may be older than that. So each object is held against its shape where it is
read, once, and what comes after may trust the types. Nulls stand only where Go writes them for an empty value.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec

from graphpod_operator.api.status import MESSAGE_MAX
from graphpod_operator.kube import bounds
from graphpod_operator.kube.cluster import Raw

T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Number = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
Generation = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Address = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[0-9A-Fa-f.:]*$")]
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Object(msgspec.Struct):
    """Of every kind."""

    metadata: bounds.Metadata


class _Row(msgspec.Struct):
    """A condition. Not every kind of others has a status in each."""

    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: Time | None = None
    observedGeneration: Generation | None = None


class _Asked(msgspec.Struct):
    replicas: Count = 1


class _Report(msgspec.Struct):
    observedGeneration: Generation = 0
    replicas: Count = 0
    updatedReplicas: Count = 0
    readyReplicas: Count = 0
    availableReplicas: Count = 0
    conditions: list[_Row] | None = None


class Workload(Object):
    """A Deployment or LeaderWorkerSet."""

    spec: _Asked | None = None
    status: _Report | None = None


class _Judged(msgspec.Struct):
    conditions: list[_Row] | None = None


class Autoscaler(Object):
    """An autoscaler of either kind."""

    status: _Judged | None = None


class _Path(msgspec.Struct):
    type: str = ""
    value: str = "/"


class _Match(msgspec.Struct):
    path: _Path | None = None


class _Rule(msgspec.Struct):
    matches: list[_Match] | None = None


class _Gateway(msgspec.Struct):
    name: str
    namespace: str = ""
    sectionName: str = ""
    port: Count | None = None


class _Route(msgspec.Struct):
    rules: list[_Rule] | None = None
    hostnames: list[str] | None = None
    parentRefs: list[_Gateway] | None = None


class _Parent(msgspec.Struct):
    parentRef: _Gateway
    conditions: list[_Row] | None = None


class _Parents(msgspec.Struct):
    parents: list[_Parent] | None = None


class HTTPRoute(Object):
    """A route of the Gateway API."""

    spec: _Route | None = None
    status: _Parents | None = None


class _Gate(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    limits: dict[str, Any] | None = None


class _Container(msgspec.Struct):
    resources: _Resources | None = None


class _PodSpec(msgspec.Struct):
    nodeName: str = ""
    schedulingGates: list[_Gate] | None = None
    containers: list[_Container] | None = None


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Running(msgspec.Struct):
    startedAt: Time | None = None


class _Terminated(msgspec.Struct):
    exitCode: Number = 0
    reason: str = ""
    message: str | None = None
    finishedAt: Time | None = None


class _State(msgspec.Struct):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct):
    name: str
    containerID: str = ""
    restartCount: Count = 0
    state: _State | None = None
    lastState: _State | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    podIP: Address = ""
    conditions: list[_Row] | None = None
    containerStatuses: list[_ContainerStatus] | None = None


class Pod(Object):
    """A pod."""

    spec: _PodSpec | None = None
    status: _PodStatus | None = None


class _Source(msgspec.Struct):
    secretName: str = ""


class _Volume(msgspec.Struct):
    name: str
    secret: _Source | None = None


class _Volumes(msgspec.Struct):
    volumes: list[_Volume] | None = None


class _Template(msgspec.Struct):
    spec: _Volumes | None = None


class _JobSpec(msgspec.Struct):
    template: _Template | None = None


class _JobStatus(msgspec.Struct):
    failed: Count = 0
    conditions: list[_Row] | None = None


class _JobMetadata(bounds.Metadata):
    creationTimestamp: Time | None = None


class Job(Object):
    """A Job."""

    metadata: _JobMetadata
    spec: _JobSpec | None = None
    status: _JobStatus | None = None


class _Requests(msgspec.Struct):
    requests: dict[str, str] | None = None


class _ClaimSpec(msgspec.Struct):
    accessModes: list[str] | None = None
    resources: _Requests | None = None
    storageClassName: str | None = None


class Claim(Object):
    """A PersistentVolumeClaim."""

    spec: _ClaimSpec | None = None


class Service(Object):
    """An InferenceService: its spec is judged by the API's own models, its status where it is read."""

    spec: dict[str, Any] | None = None


_FAULTS = (RecursionError, AttributeError, LookupError, TypeError, ValueError, AssertionError)
"""What a value of another kind leads to; msgspec's own errors are among them."""


def projected(raw: Raw, shape: type[Object], project: Callable[[Raw], T]) -> T:
    """The projection of an object, whatever stands in it: anybody may write one. Where the status cannot be read, it is
    that of the object without it; else, of its outline. Both name the fault as a bound that the object breaks. Raises
    ValueError where no object can be made out.
    """

    def checked(found: Raw) -> T:
        msgspec.convert(found, shape)
        return project(found)

    try:
        return checked(raw)
    except _FAULTS as error:
        why = f"the object cannot be read: {error}"[:MESSAGE_MAX]
    try:
        return checked({**raw, "status": {}, bounds.BREACH: why})
    except _FAULTS:
        return project(bounds.stripped(raw, why))
