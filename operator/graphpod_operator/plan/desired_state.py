"""What a service should have: its plan and its children, or why it has none. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.absent_kinds import Absence
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.capture_failure_annotation import CaptureFailures
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.downloads import Weights
from graphpod_operator.render.owner import Body
from graphpod_operator.render.pod import additions
from graphpod_operator.render.pod.container import start_limit
from graphpod_operator.render.workload.body import kind_of, nodes_of
from graphpod_policy import Plan


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
    workload: Body
    """The part of the Deployment's or LeaderWorkerSet's spec that its pods come from."""
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
    weights: Weights | None = None
    asleep: bool = False
    """Its pods are to sleep: an autoscaler keeps their number, and no budget protects them."""
    misses_key: bool = False
    """A pod waits for the Secret with the key of its groups: somebody has deleted it."""

    @property
    def kind(self) -> Resource:
        """What makes its pods."""
        return kind_of(self.workload)

    @property
    def nodes(self) -> int:
        """Pods of one replica."""
        return nodes_of(self.workload)

    @property
    def mounts(self) -> tuple[tuple[str, str], ...]:
        """The objects of others that its pods mount: kind and name."""
        return tuple(dict.fromkeys(additions.mounted(self.workload["template"]["spec"]["volumes"])))

    @property
    def pulls_with(self) -> tuple[str, ...]:
        """The Secrets that its image is pulled with."""
        return tuple(one["name"] for one in self.workload["template"]["spec"].get("imagePullSecrets", ()))

    @property
    def start_limit(self) -> int:
        """Seconds after which the kubelet ends a start."""
        return start_limit(self.workload)


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
