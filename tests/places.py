"""A namespace as a test sees it, with short words for what tests about services say often."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from testbed.cluster import Cluster

Manifest = dict[str, Any]
LABEL = "graphpod.dev/inferenceservice"
KINDS = {
    "configmap": "/api/v1/{}/configmaps",
    "controllerrevision": "/apis/apps/v1/{}/controllerrevisions",
    "deployment": "/apis/apps/v1/{}/deployments",
    "gisvc": "/apis/graphpod.dev/v1alpha1/{}/inferenceservices",
    "event": "/api/v1/{}/events",
    "horizontalpodautoscaler": "/apis/autoscaling/v2/{}/horizontalpodautoscalers",
    "job": "/apis/batch/v1/{}/jobs",
    "networkpolicy": "/apis/networking.k8s.io/v1/{}/networkpolicies",
    "pod": "/api/v1/{}/pods",
    "poddisruptionbudget": "/apis/policy/v1/{}/poddisruptionbudgets",
    "pvc": "/api/v1/{}/persistentvolumeclaims",
    "replicaset": "/apis/apps/v1/{}/replicasets",
    "service": "/api/v1/{}/services",
    "serviceaccount": "/api/v1/{}/serviceaccounts",
}
"""Kinds that tests read again and again, and where the API server has those of a namespace. A kubectl process takes
fifteen times the CPU time to ask.
"""
FOREIGN = {
    "httproute": "/apis/gateway.networking.k8s.io/v1/{}/httproutes",
    "leaderworkerset": "/apis/leaderworkerset.x-k8s.io/v1/{}/leaderworkersets",
    "podmonitor": "/apis/monitoring.coreos.com/v1/{}/podmonitors",
    "scaledobject": "/apis/keda.sh/v1alpha1/{}/scaledobjects",
}
"""The same of kinds that a cluster has once a test brings them."""
PATHS = {**KINDS, **FOREIGN}
PLURALS = {path.rpartition("/")[2]: path for path in PATHS.values()}
URI = "pvc://weights/model"


class PodSecurity(StrEnum):
    """What the namespace lets in (the API server's own words)."""

    Privileged = "privileged"
    Baseline = "baseline"
    Restricted = "restricted"


@dataclass(frozen=True)
class Place:
    """One namespace of a cluster, as its admin sees it."""

    cluster: Cluster
    namespace: str

    def create(self, security: PodSecurity = PodSecurity.Restricted) -> None:
        labels = {"pod-security.kubernetes.io/enforce": security.value}
        metadata = {"name": self.namespace, "labels": labels}
        self.cluster.apply(self._path, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def delete(self) -> None:
        """Told, not waited for: the controller manager does it while the next test runs."""
        self.cluster.delete(self._path)

    def empty(self) -> None:
        """Its services go, and what they own, while the next test runs. A namespace that goes as well is a hundred
        requests of the controller manager more, two for each kind there is.
        """
        self.cluster.delete(self._all("gisvc"))

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    def kubectl(self, *args: str, **kwargs: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *args, **kwargs)

    def apply(self, name: str = "demo", metadata: Manifest | None = None, **spec: Any) -> None:
        """Apply an InferenceService."""
        self.cluster.apply(f"{self._all('gisvc')}/{name}", service(name, metadata, **spec))

    def remove(self, name: str = "demo") -> None:
        """Delete an InferenceService, if it is there."""
        self.drop("gisvc", name)

    def get(self, kind: str, name: str) -> Manifest:
        """An object, with its managed fields. TestbedError where there is none."""
        if path := PATHS.get(kind) or PLURALS.get(kind):
            found: Manifest = self.cluster.read(f"{self._where(path)}/{name}")
        else:
            found = json.loads(self.kubectl("get", kind, name, "-o", "json", "--show-managed-fields"))
        return found

    def _all(self, kind: str) -> str:
        return self._where(PATHS[kind])

    def _where(self, path: str) -> str:
        return path.format(f"namespaces/{self.namespace}")

    def all(self, kind: str, selector: str = "") -> list[Manifest]:
        """The objects of a kind, with that label."""
        found: list[Manifest] = self.cluster.read(f"{self._all(kind)}?labelSelector={quote(selector)}")["items"]
        return found

    def post(self, kind: str, manifest: Manifest) -> Manifest:
        """Make an object, by its manifest; the object as it is then."""
        made: Manifest = self.cluster.post(self._all(kind), manifest)
        return made

    def merge(self, kind: str, name: str, change: Manifest, part: str = "") -> None:
        """Merge patch of an object, or of a part of it: `status`, `scale`."""
        self.cluster.merge("/".join(filter(None, (self._all(kind), name, part))), change)

    def scale(self, replicas: int, name: str = "demo") -> None:
        """What `kubectl scale deployment` does."""
        self.merge("deployment", name, {"spec": {"replicas": replicas}}, "scale")

    def label(self, kind: str, name: str, labels: dict[str, str | None]) -> None:
        """What `kubectl label --overwrite` does; None takes a label away."""
        self.merge(kind, name, {"metadata": {"labels": labels}})

    def annotate(self, kind: str, name: str, annotations: dict[str, str | None]) -> None:
        """What `kubectl annotate --overwrite` does; None takes an annotation away."""
        self.merge(kind, name, {"metadata": {"annotations": annotations}})

    def drop(self, kind: str, name: str) -> None:
        """Delete an object that nothing holds, if it is there."""
        self.cluster.delete(f"{self._all(kind)}/{name}")

    def relabel(self, kinds: str, selector: str, labels: dict[str, str]) -> None:
        """What `kubectl label --overwrite` does with the objects of these kinds, which are all known here."""
        for kind in kinds.split(","):
            for one in self.all(kind, selector):
                self.label(kind, one["metadata"]["name"], {**labels})

    def names(self, kinds: str, selector: str = LABEL) -> list[str]:
        """The objects of these kinds (`services,pods`) with that label, as kubectl names them: `service/demo`."""
        known = [PLURALS.get(kind, PATHS.get(kind)) for kind in kinds.split(",")]
        if None in known:
            return self.kubectl("get", kinds, "-l", selector, "-o", "name").split()
        return [name for path in known if path for name in self._names(path, selector)]

    def _names(self, path: str, selector: str) -> list[str]:
        found = self.cluster.read(f"{self._where(path)}?labelSelector={quote(selector)}")
        group = found["apiVersion"].rpartition("/")[0]
        kind = ".".join(filter(None, (found["kind"].removesuffix("List").lower(), group)))
        return [f"{kind}/{one['metadata']['name']}" for one in found["items"]]

    def pods(self, name: str = "demo") -> list[Manifest]:
        found = self.all("pod", f"{LABEL}={name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def status(self, name: str = "demo") -> Manifest:
        return self.get("gisvc", name).get("status") or {}

    def condition(self, kind: str, name: str = "demo") -> tuple[str, str, str]:
        """(status, reason, message) of a condition, of the current generation only."""
        found = self.get("gisvc", name)
        for condition in (found.get("status") or {}).get("conditions", []):
            if condition["type"] == kind and condition["observedGeneration"] == found["metadata"]["generation"]:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def reached(self, kind: str, status: str, reason: str, name: str = "demo") -> Callable[[], str]:
        """A check for `eventually`: the message of a condition, once it has that status and reason."""

        def check() -> str:
            found = self.condition(kind, name)
            assert found[:2] == (status, reason), f"{kind} is {found}"
            return found[2]

        return check


def service(name: str = "demo", metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """An InferenceService with the given spec beside its model."""
    return {
        "apiVersion": "graphpod.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"model": {"uri": URI}, **spec},
    }
