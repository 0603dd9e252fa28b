"""All that a service is planned from, as one value."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.install.installation import Installation
from graphpod_operator.kube.absent_kinds import Absent
from graphpod_operator.kube.resources import Resource, workload_kind
from graphpod_operator.plan.downloads import WeightsSeen
from graphpod_operator.plan.weights_orders import wish

_MISSING_SECRET = re.compile(r'secret "([^"]+)" not found')


@dataclass(frozen=True, slots=True)
class PlanInput:
    """A service, what the operator's installer decides, and what is there of the service: the ControllerRevisions that
    carry its label, what makes its pods and all of these. `absent` are the optional kinds that are not there.
    """

    found: Service
    installed: Installation
    revisions: Collection[Child] = ()
    workloads: Collection[Child] = ()
    pods: Collection[Pod] = ()
    absent: Absent = field(default_factory=dict)
    weights: WeightsSeen | None = None
    """What there is of its downloads; None: it is unknown."""

    @property
    def failed_start(self) -> bool:
        """Whether one of its pods has failed to start and goes on trying."""
        return any(pod.failed_start for pod in self.pods)

    @property
    def missing_secrets(self) -> frozenset[str]:
        """The Secrets that its pods wait for, by the kubelet's words: the operator may not look for them."""
        waiting = (pod.waiting[1] for pod in self.pods if pod.waiting is not None)
        return frozenset(name for message in waiting for name in _MISSING_SECRET.findall(message))

    @property
    def asleep(self) -> bool:
        """Whether its pods are to sleep."""
        return wish(self.found).sleeps

    @property
    def capture_failures(self) -> str | None:
        """What is kept at the object that makes its pods of starts that died in a capture."""
        return self.running.capture_failures if self.running is not None else None

    @property
    def running(self) -> Child | None:
        """The object of this very service that makes its pods; of both kinds that of the spec."""
        ours = {child.resource: child for child in self.workloads if is_ours(self.found, child)}
        return ours.get(workload_kind(self.found.nodes)) or next(iter(ours.values()), None)

    @property
    def grouped(self) -> bool:
        """Whether there are groups of pods, or will be."""
        ours = (child for child in self.workloads if is_ours(self.found, child))
        there = any(child.resource is Resource.LeaderWorkerSet for child in ours)
        return self.found.nodes > 1 or there
