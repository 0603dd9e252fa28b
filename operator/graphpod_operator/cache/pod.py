"""The projection of a pod: what its kubelet and its scheduler say of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from graphpod_operator.api.names import (
    CONTAINER,
    FETCH_CONTAINER,
    GPU,
    GROUP_INDEX_LABEL,
    HASH_ANNOTATION,
    OWNER_LABEL,
    TEMPLATE_ANNOTATION,
    WORKER_INDEX_LABEL,
    group_name,
)
from graphpod_operator.cache import shape
from graphpod_operator.cache.child import ControllerRef
from graphpod_operator.cache.key import Key
from graphpod_operator.kube import bounds
from graphpod_operator.kube.cluster import Raw

INDEX_DIGITS = 6
PREPARED_SECONDS = 60.0
"""A node that needs longer to mount a pod's volumes and create its sandbox is reported."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended."""

    code: int
    reason: str
    message: str
    """Its termination message: of an engine the first line, of a download the whole."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a service, or (without a `key`) one of a Job that downloads weights. `container` is empty until the
    container that the pod is for runs for the first time.
    """

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
    """Why it failed permanently, though the object still exists: evicted, refused by its node, its node shut down."""
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
    started: str | None = None
    """Since when (RFC 3339) the engine container runs; None while it does not, or unknown."""
    breach: str | None = None
    """Which bound it breaks; nothing but its metadata was read then."""
    job: str = ""
    """Uid of the Job that it belongs to; empty of a service's pod."""
    index: int | None = None
    """Which pod of a group it is: 0 is its leader, whose engine answers for all of them. None: it is of no group."""
    gpus: int = 0
    """Whole NVIDIA GPUs that its containers ask for, all of one node."""
    goes_by: datetime | None = None
    """When one that is being deleted is to be gone at the latest: the end of its grace period."""

    @property
    def answers_requests(self) -> bool:
        """Whether an engine's front is in it: not in the workers of a group, which have ranks alone."""
        return not self.index

    @property
    def failed_start(self) -> bool:
        """Whether its container ended unasked, and the kubelet keeps restarting it."""
        return self.ended is not None and not (self.ready or self.deleting or self.gone is not None)

    @property
    def drains(self) -> bool:
        """Whether it is being deleted and still holds what it has of its node."""
        return self.deleting and self.placed and self.gone is None

    @property
    def ran(self) -> bool:
        """Whether its container has run, or runs."""
        return bool(self.container) or self.running or self.ended is not None

    def unprepared_seconds(self, now: str) -> float | None:
        """For how long its node has been preparing it by `now` (RFC 3339); None once that is done, or unknown."""
        if self.unprepared is None:
            return None
        return (datetime.fromisoformat(now) - datetime.fromisoformat(self.unprepared)).total_seconds()

    @classmethod
    def of(cls, raw: Raw) -> Pod:
        """The projection of a pod."""
        return shape.projected(raw, shape.Pod, cls._of)

    @classmethod
    def _of(cls, raw: Raw) -> Pod:
        metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        annotations = metadata.get("annotations") or {}
        conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
        job = _job(metadata)
        name = FETCH_CONTAINER if job else CONTAINER
        engine: Raw = next((entry for entry in status.get("containerStatuses") or () if entry["name"] == name), {})
        state = engine.get("state") or {}
        scheduled, prepared = (conditions.get(kind, {}) for kind in ("PodScheduled", "PodReadyToStartContainers"))
        waiting = state.get("waiting")
        ended, index = state.get("terminated"), _index(metadata)
        restarts = engine.get("restartCount", 0)
        if ended is None or (index is not None and not _before_deletion(ended, metadata, restarts)):
            ended = (engine.get("lastState") or {}).get("terminated")  # a group goes for that, and then it is stopped
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
            restarts=restarts,
            waiting=(waiting.get("reason", ""), waiting.get("message", "")) if waiting else None,
            unprepared=prepared.get("lastTransitionTime") if prepared.get("status") == "False" else None,
            ended=_ended(ended, whole=bool(job)) if ended else None,
            started=(state.get("running") or {}).get("startedAt"),
            breach=raw.get(bounds.BREACH),
            job=job,
            index=index,
            gpus=sum(_gpus(container) for container in spec.get("containers") or ()),
            goes_by=datetime.fromisoformat(by) if (by := metadata.get("deletionTimestamp")) is not None else None,
        )


def _gpus(container: Raw) -> int:
    """What the API server has made of the amount: a whole number."""
    amount = str(((container.get("resources") or {}).get("limits") or {}).get(GPU, ""))
    return int(amount) if amount.isdecimal() else 0


def _pod_owner(metadata: Raw) -> Key | None:
    """The service a pod runs for: its label, if the ReplicaSet that controls it is one of that service's Deployment, or
    the StatefulSet one of its LeaderWorkerSet: of the leaders, or of a group's workers.
    """
    labels = metadata.get("labels") or {}
    name, controller = labels.get(OWNER_LABEL), ControllerRef.of(metadata)
    if not name or controller is None or controller.group != "apps":
        return None
    groups = group_name(name)
    made = (
        ("ReplicaSet", f"{name}-{labels.get('pod-template-hash')}"),
        ("StatefulSet", groups),
        ("StatefulSet", f"{groups}-{labels.get(GROUP_INDEX_LABEL)}"),
    )
    return Key(metadata["namespace"], name) if (controller.kind, controller.name) in made else None


def _index(metadata: Raw) -> int | None:
    """Which pod of its group it is."""
    index, controller = str((metadata.get("labels") or {}).get(WORKER_INDEX_LABEL, "")), ControllerRef.of(metadata)
    if controller is None or controller.kind != "StatefulSet":
        return None  # spec.podTemplate.labels may say anything
    return int(index) if index.isdecimal() and len(index) <= INDEX_DIGITS else None


def _before_deletion(ended: Raw, metadata: Raw, restarts: int) -> bool:
    """Whether a container ended before anybody asked for its pod's deletion: after that it was stopped, or lost those
    that were. A group goes once a container has run again, so a later run than the first was stopped: the kubelet's
    last request, which has no grace period, hides when the first one was.
    """
    if (by := metadata.get("deletionTimestamp")) is None:
        return True
    if restarts or (finished := ended.get("finishedAt")) is None:
        return False
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return datetime.fromisoformat(finished) <= datetime.fromisoformat(by) - grace


def _job(metadata: Raw) -> str:
    """The uid of the Job that a pod belongs to; empty where there is none."""
    controller = ControllerRef.of(metadata)
    return controller.uid if controller is not None and controller[:2] == ("batch", "Job") else ""


def _gone(status: Raw) -> str | None:
    if status.get("phase") not in ("Failed", "Succeeded"):
        return None
    return ": ".join(filter(None, (status.get("reason") or status["phase"], status.get("message"))))


def _ended(terminated: Raw, *, whole: bool) -> Ended:
    message = (terminated.get("message") or "").strip()
    first = message if whole else next(iter(message.splitlines()), "")
    return Ended(terminated.get("exitCode", 0), terminated.get("reason", ""), first)
