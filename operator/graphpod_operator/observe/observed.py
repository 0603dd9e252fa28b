"""What the operator sees of one service beside its spec: what `status` tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphpod_operator.cache.child import Child, DeploymentRollout
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.route_status import RouteStatus
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.reading import NoReading, Reading


@dataclass(frozen=True, slots=True)
class Observed:
    """What the cluster says of a service. `readings` holds an entry for each running pod, by pod uid."""

    rollout: DeploymentRollout | None
    pods: tuple[Pod, ...]
    readings: Mapping[str, Reading | NoReading]
    optional: frozenset[Resource] = frozenset()
    """The optional kinds of which the service has its object."""
    autoscaler: Child | None = None
    route: RouteStatus | None = None
    held_up: Mapping[Resource, str] = field(default_factory=dict)
    """The optional kinds of which it could not be written, with the API server's words."""
