"""InferenceService as frozen values: the one source of the CRD, of its manual and of what the operator reads.

Field names are camelCase on the wire. Each description is what `kubectl explain` prints, so it says what happens, in
which unit, and the default. Unconditional defaults are schema defaults; one that depends on other fields is described
in the description and its value appears in status. A field that is not built has a schema default only where that means
off.
"""

from __future__ import annotations

from pydantic import Field

from graphpod_operator.api.base import ApiModel, Boolean, Integer, ValidationRule
from graphpod_operator.api.engine import Engine
from graphpod_operator.api.graph import Graph
from graphpod_operator.api.lifecycle import Autoscaling, Monitoring, Rollout, Slo, Updates
from graphpod_operator.api.model import Model
from graphpod_operator.api.networking import Networking
from graphpod_operator.api.placement import Parallelism, Placement, Resources
from graphpod_operator.api.pod import PodTemplate
from graphpod_policy import Role


class Spec(ApiModel):
    """What the user asks for. What a field calls not built is refused: Accepted=False/FeatureNotBuilt."""

    RULES = (
        ValidationRule(
            "!has(self.engine) || !has(self.engine.hostCache) || !has(self.engine.hostCache.file) || "
            "(has(self.podTemplate) && has(self.podTemplate.volumeMounts) && self.podTemplate.volumeMounts.exists(m, "
            "!(has(m.readOnly) && m.readOnly) && "
            "(self.engine.hostCache.file.path + '/').startsWith(m.mountPath + '/')))",
            "engine.hostCache.file.path: must lie in a folder of podTemplate.volumeMounts that is not read-only",
            lambda spec: _writable(spec),
        ),
    )

    model: Model = Field(description="Which weights to serve. Required.")
    engine: Engine = Field(Engine(), description="How the engine runs. Default: every default below.")
    parallelism: Parallelism = Field(
        Parallelism(), description="How one replica is spread over devices. Default: one device."
    )
    role: Role = Field(
        Role.Both,
        description="Which phases the replicas serve; the other phase's graphs are Disabled. Default: Both.",
    )
    graph: Graph = Field(
        Graph(), description="Policies, sizes and budget of CUDA graphs. Default: Auto for both phases."
    )
    replicas: Integer = Field(
        1, ge=0, le=1000, description="Pods that serve the model, unless spec.autoscaling decides. Default: 1."
    )
    autoscaling: Autoscaling | None = Field(
        None, description="Replicas by load; spec.replicas is ignored meanwhile. Default: off."
    )
    resources: Resources = Field(Resources(), description="What one pod gets. Default: no requests, no limits.")
    placement: Placement = Field(Placement(), description="Where the pods may run. Default: anywhere.")
    pod_template: PodTemplate = Field(
        PodTemplate(),
        description="Additions to the pods: labels, annotations, environment and volumes. Default: nothing.",
    )
    networking: Networking = Field(
        Networking(), description="How clients outside the cluster reach the service. Default: they do not."
    )
    rollout: Rollout = Field(Rollout(), description="How changes reach the pods. Default: see its fields.")
    updates: Updates = Field(
        Updates.Pinned,
        description="Whether a newer operator's default image, rules and form of the pods reach this service "
        "automatically (Auto), or with the next change of the spec or the annotation graphpod.dev/adopt (Pinned). "
        "The conditions EngineUpdateAvailable and PolicyUpdateAvailable announce them. Default: Pinned.",
    )
    suspend: Boolean = Field(
        False,
        description="Keep the object and its Service, but run no pod, with or without autoscaling. Default: false.",
    )
    slo: Slo | None = Field(
        None,
        description="Latencies that alerts hold it to; a change restarts no pod. Default: those of the alerts.",
    )
    monitoring: Monitoring = Field(Monitoring(), description="Objects for Prometheus. Default: none.")


def _writable(spec: Spec) -> bool:
    """Whether files of the KV cache, if there are any, lie in a volume."""
    tier = spec.engine.host_cache
    if tier is None or tier.file is None:
        return True
    path, mounts = f"{tier.file.path}/", spec.pod_template.volume_mounts
    return any(path.startswith(f"{one.mount_path}/") for one in mounts if not one.read_only)
