"""What the operator remembers of each service between two looks at it. It ends with the process, and only saves work:
what a decision needs is read again from the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.leaving_pods import LeavingPods
from graphpod_operator.cache.service import Service
from graphpod_operator.kube.resources import Resource


@dataclass(frozen=True, slots=True)
class RefusedBody:
    """A body that the API server refused for a fault of the spec: by the fingerprint of its fields, and the answer."""

    owned: str
    status: int
    message: str
    until: float
    """When it may be sent again."""


@dataclass(frozen=True, slots=True)
class RecoverySought:
    """What a look for a lost ControllerRevision found, and what it went by: one that cannot be written stays lost."""

    by: tuple[Service, str, str]
    """The service but for its status, and of its Deployment the revision and the fingerprint of its fields of ours."""
    rebuilt: Child | None


@dataclass(frozen=True, slots=True)
class WeightsOrdered:
    """An order to the container of a pod: when, how often in a row, and why it did not arrive."""

    at: float
    times: int = 1
    failure: str = ""


@dataclass(slots=True)
class ServiceMemory:
    """What is remembered of the service of one uid. Times are seconds of a clock that only goes forward."""

    uid: str
    is_ending: bool = False
    """Its namespace is being deleted, so it does not come back."""
    reread: bool = False
    """Its pods are to be asked again, also those whose warm-up has ended."""
    leaving: LeavingPods = field(default_factory=LeavingPods)
    """Its pods that are being deleted."""
    replicas: object = None
    """The spec's number of pods as it was looked at last, in a tuple; None before the first look."""
    in_order: frozenset[tuple[Resource, str]] = frozenset()
    """Its children when all of them were in order."""
    normalised: dict[tuple[Resource, str], tuple[str, str]] = field(default_factory=dict)
    """Of children that the API server stored otherwise than they were applied: both fingerprints."""
    refused: RefusedBody | None = None
    """What was refused last."""
    pruned: float = float("-inf")
    """When its old ControllerRevisions were looked at last."""
    unreadable: set[str] = field(default_factory=set)
    """Corrupt ControllerRevisions (by uid) that were reported."""
    sought: RecoverySought | None = None
    generation: int = 0
    """That was looked at last."""
    generation_seen: float | None = None
    """When it was looked at first, until the service is Ready; None, too, where an earlier operator had seen it."""
    ordered: dict[str, dict[tuple[str, str], WeightsOrdered]] = field(default_factory=dict)
    """The orders about its weights, by command and revision, that each container got since it last obeyed one."""
    status_written: float = float("-inf")
    """When its status was written last."""
    status_said: tuple[str, str] | None = None
    """Of that status the fingerprints of what was said, and of what the server then had."""


class ServiceMemories:
    """The memory of each service."""

    def __init__(self) -> None:
        self._of: dict[Key, ServiceMemory] = {}

    def of(self, found: Service) -> ServiceMemory:
        """What is remembered of a service; another of its name has left nothing."""
        if (known := self._of.get(found.key)) is None or known.uid != found.uid:
            known = self._of[found.key] = ServiceMemory(found.uid)
        return known

    def forget(self, key: Key) -> None:
        """The service is gone: nothing is kept of it."""
        self._of.pop(key, None)
