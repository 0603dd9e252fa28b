"""The kinds of objects the operator deals with: a table."""

from __future__ import annotations

from enum import Enum

from graphpod_operator.api.names import GROUP, KIND, PLURAL, VERSION, group_name


class Resource(Enum):
    """One kind: (group, version, plural, kind)."""

    InferenceService = (GROUP, VERSION, PLURAL, KIND)
    ServiceAccount = ("", "v1", "serviceaccounts", "ServiceAccount")
    ConfigMap = ("", "v1", "configmaps", "ConfigMap")
    Service = ("", "v1", "services", "Service")
    ControllerRevision = ("apps", "v1", "controllerrevisions", "ControllerRevision")
    Deployment = ("apps", "v1", "deployments", "Deployment")
    HorizontalPodAutoscaler = ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
    PodDisruptionBudget = ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
    NetworkPolicy = ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
    PodMonitor = ("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")
    ScaledObject = ("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")
    HTTPRoute = ("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
    LeaderWorkerSet = ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
    Job = ("batch", "v1", "jobs", "Job")
    PersistentVolumeClaim = ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
    ReplicaSet = ("apps", "v1", "replicasets", "ReplicaSet")
    Pod = ("", "v1", "pods", "Pod")
    Secret = ("", "v1", "secrets", "Secret")
    Lease = ("coordination.k8s.io", "v1", "leases", "Lease")

    @property
    def group(self) -> str:
        """API group; empty for the core."""
        return self.value[0]

    @property
    def version(self) -> str:
        """Version within the group."""
        return self.value[1]

    @property
    def plural(self) -> str:
        """Name in URLs and RBAC."""
        return self.value[2]

    @property
    def kind(self) -> str:
        """Name in manifests."""
        return self.value[3]

    @property
    def api_version(self) -> str:
        """`group/version`, or `version` in the core."""
        return f"{self.group}/{self.version}" if self.group else self.version


def workload_name(kind: Resource, name: str) -> str:
    """Name of the object of this kind that makes the pods of the service `name`."""
    return group_name(name) if kind is Resource.LeaderWorkerSet else name


def workload_kind(nodes: int) -> Resource:
    """The kind that makes the pods of replicas that run on so many nodes each."""
    return Resource.LeaderWorkerSet if nodes > 1 else Resource.Deployment


CHILDREN = (
    Resource.ServiceAccount,
    Resource.ConfigMap,
    Resource.Service,
    Resource.ControllerRevision,
    Resource.PodDisruptionBudget,
    Resource.NetworkPolicy,
    Resource.Deployment,
    Resource.LeaderWorkerSet,
    Resource.HorizontalPodAutoscaler,
    Resource.ScaledObject,
    Resource.PodMonitor,
    Resource.HTTPRoute,
)
"""What we apply, in the order we apply it: what a pod needs, and the memory of its rendering, come before the pod."""

WORKLOADS = (Resource.Deployment, Resource.LeaderWorkerSet)
"""What makes the pods of a service: of one node each, or of several."""

AUTOSCALERS = (Resource.HorizontalPodAutoscaler, Resource.ScaledObject)
"""Who may decide on the number of pods."""

AT_TIMES = (
    Resource.PodDisruptionBudget,
    Resource.NetworkPolicy,
    *AUTOSCALERS,
    Resource.PodMonitor,
    Resource.HTTPRoute,
)
"""Of these, what is not always wanted; it is deleted when it is wanted no more. It has the service's name."""

ADDITIONS = (Resource.PodMonitor, Resource.ScaledObject, Resource.HTTPRoute)
"""Kinds of others without whose object the pods run all the same."""

OPTIONAL = (*ADDITIONS, Resource.LeaderWorkerSet)
"""Kinds of others, whose CRD may be absent, come and go. `watch.optional_kinds` knows which of them are served."""

WATCHED = (
    Resource.InferenceService,
    *(resource for resource in CHILDREN if resource not in OPTIONAL),
    Resource.Job,
    Resource.Pod,
)
"""What the store always holds: kinds listed at the start, watched, and listed again at every resync."""
