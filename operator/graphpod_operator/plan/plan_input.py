"""All that a service is planned from, as one value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.install.installation import Installation
from graphpod_operator.kube.absent_kinds import Absent
from graphpod_operator.plan.downloads import WeightsSeen
from graphpod_operator.plan.weights_orders import wish


@dataclass(frozen=True, slots=True)
class PlanInput:
    """A service, what the operator's installer decides, and what is there of the service: the ControllerRevisions that
    carry its label, its Deployment and all of its pods. `absent` are the optional kinds that are not there.
    """

    found: Service
    installed: Installation
    revisions: Collection[Child] = ()
    deployment: Child | None = None
    pods: Collection[Pod] = ()
    absent: Absent = field(default_factory=dict)
    weights: WeightsSeen | None = None
    """What there is of its downloads; None: it is unknown."""

    @property
    def failed_start(self) -> bool:
        """Whether one of its pods has failed to start and goes on trying."""
        return any(pod.failed_start for pod in self.pods)

    @property
    def asleep(self) -> bool:
        """Whether its pods are to sleep."""
        return wish(self.found).sleeps

    @property
    def capture_failures(self) -> str | None:
        """What its Deployment keeps of starts that died in a capture."""
        ours = self.deployment is not None and is_ours(self.found, self.deployment)
        return self.deployment.capture_failures if self.deployment is not None and ours else None
