"""What a service should have: its plan and its children, or why it has none. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.absent_kinds import Absence
from graphpod_operator.kube.field_ownership import desired_fields, fingerprint, marked
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.capture_failure_annotation import CaptureFailures
from graphpod_operator.render.owner import Body
from graphpod_operator.render.pod import pod_template
from graphpod_operator.render.pod.container import start_limit
from graphpod_policy import Plan

NO_VERSION = "1"
"""A resourceVersion that no stored object has: etcd's first write is its revision 2. An apply that names it makes an
object, and is answered with a 409 where there is one already, whoever made it: the API server compares versions only
with what is stored. Without it, an object made since the last look would be merged with ours.
"""


@dataclass(frozen=True, slots=True)
class DesiredChild:
    """One child as it should be; `owned` is the fingerprint its fields of ours must have."""

    resource: Resource
    namespace: str
    name: str
    body: Body
    owned: str

    @classmethod
    def of(cls, resource: Resource, body: Body) -> DesiredChild:
        """A child from the body to apply."""
        metadata = body["metadata"]
        return cls(resource, metadata["namespace"], metadata["name"], body, fingerprint(desired_fields(body)))

    def to_apply(self, uid: str | None) -> Body:
        """What to send: the body with the mark of its fields, for the object of this uid, or for none yet (None)."""
        annotated = marked(self.body, self.owned)
        meant = {"resourceVersion": NO_VERSION} if uid is None else {"uid": uid}
        return {**annotated, "metadata": {**annotated["metadata"], **meant}}

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Desired:
    """A service that can run: its graph plan, the hash of its engine's configuration, the fingerprint of its pods'
    template, the name of its rendering, its children in order.

    `replicas` is None while an autoscaler decides, `fewest` how many there are at least, `scaled_by` says who decides.
    `withheld` are the children of it that cannot be made here, `shut` the namespaces of its Gateways whose pods the
    NetworkPolicy keeps out. `news` is what this operator would do otherwise, were the service's rendering not kept.
    `capture_failures` is the record of starts that failed in a capture, `steps_down` whether it leads to a weaker
    plan now, `can_weaken` whether one may follow. `policy` is the plan before that, with the decisions of every step.
    """

    policy: Plan
    config_hash: str
    template: str
    revision: str
    replicas: int | None
    fewest: int
    scaled_by: str
    children: tuple[DesiredChild, ...]
    withheld: tuple[Withheld, ...] = ()
    shut: tuple[str, ...] = ()
    news: tuple[PendingUpdate, ...] = ()
    capture_failures: CaptureFailures | None = None
    can_weaken: bool = False
    steps_down: bool = False

    @property
    def mounts(self) -> str:
        """The objects of others that its pods mount, in words."""
        return ", ".join(pod_template.mounted(self._workload["template"]["spec"]["volumes"]))

    @property
    def start_limit(self) -> int:
        """Seconds after which the kubelet ends a start."""
        return start_limit(self._workload)

    @property
    def _workload(self) -> Body:
        spec: Body = next(child.body["spec"] for child in self.children if child.resource is Resource.Deployment)
        return spec


@dataclass(frozen=True, slots=True)
class Withheld:
    """A child that the spec asks for, of a kind that is not there."""

    resource: Resource
    why: Absence


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """One thing that adopting this operator's rendering would change: a reason, and what it is in words."""

    reason: Reason
    what: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A service that cannot run as written. Its children, if it has any, stay as they are."""

    reason: Reason
    what: str
    policy: Plan | None = None
