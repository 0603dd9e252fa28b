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
    "deployment": "/apis/apps/v1/{}/deployments",
    "gisvc": "/apis/graphpod.dev/v1alpha1/{}/inferenceservices",
    "pod": "/api/v1/{}/pods",
    "poddisruptionbudget": "/apis/policy/v1/{}/poddisruptionbudgets",
    "pvc": "/api/v1/{}/persistentvolumeclaims",
    "service": "/api/v1/{}/services",
}
"""Kinds that tests read again and again, and where the API server has those of a namespace. A kubectl process takes
fifty times as long to ask.
"""
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
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}}
        self.cluster.kubectl("create", "-f", "-", input=json.dumps(manifest))

    def delete(self) -> None:
        """Told, not waited for: the controller manager does it while the next test runs."""
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")

    def kubectl(self, *args: str, **kwargs: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *args, **kwargs)

    def apply(self, name: str = "demo", metadata: Manifest | None = None, **spec: Any) -> None:
        """Apply an InferenceService."""
        self.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(service(name, metadata, **spec)))

    def get(self, kind: str, name: str) -> Manifest:
        """An object, with its managed fields. TestbedError where there is none."""
        if kind in KINDS:
            found: Manifest = self.cluster.read(f"{self._all(kind)}/{name}")
        else:
            found = json.loads(self.kubectl("get", kind, name, "-o", "json", "--show-managed-fields"))
        return found

    def _all(self, kind: str) -> str:
        return KINDS[kind].format(f"namespaces/{self.namespace}")

    def names(self, kinds: str) -> list[str]:
        return self.kubectl("get", kinds, "-l", LABEL, "-o", "name").split()

    def pods(self, name: str = "demo") -> list[Manifest]:
        items = self.cluster.read(f"{self._all('pod')}?labelSelector={quote(f'{LABEL}={name}')}")["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

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
