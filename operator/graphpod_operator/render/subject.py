"""Who the children belong to, and what they all share: names, labels, owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphpod_operator.access import Access
from graphpod_operator.api import API_VERSION, KIND, Spec
from graphpod_operator.resource import Resource

OWNER_LABEL = "graphpod.dev/inferenceservice"
HASH_ANNOTATION = "graphpod.dev/config-hash"
TEMPLATE_ANNOTATION = "graphpod.dev/template"
"""Of a pod: the fingerprint of the template it was made from."""
REVISION_ANNOTATION = "graphpod.dev/revision"
"""Of a Deployment: the rendering it was made from."""
PAUSED_ANNOTATION = "graphpod.dev/paused"
ADOPT_ANNOTATION = "graphpod.dev/adopt"
DEATHS_ANNOTATION = "graphpod.dev/capture-deaths"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
MANAGED_BY = ("app.kubernetes.io/managed-by", "graphpod")

Body = dict[str, Any]


def selector(name: str) -> dict[str, str]:
    """Labels that select the pods of the service `name`. They never change: a Deployment's selector is immutable."""
    return {"app.kubernetes.io/name": "graphpod-engine", "app.kubernetes.io/instance": name}


def config_name(name: str, config_hash: str) -> str:
    """Name of the ConfigMap of the service `name` that holds the bytes of `config_hash`."""
    return f"{name}-engine-{config_hash}"


@dataclass(frozen=True, slots=True)
class Subject:
    """One InferenceService as the builders see it."""

    name: str
    namespace: str
    uid: str
    spec: Spec
    queue: str | None = None
    """The Kueue queue that the pods wait in."""
    prometheus: str = ""
    """Where KEDA asks for the pods' load."""
    access: Access | None = None
    """Who may reach the pods; None: everybody."""
    fixed_user: bool = True
    """Whether the pods name their user and groups, or leave them to the cluster."""

    @property
    def selector(self) -> dict[str, str]:
        """Labels that select the pods."""
        return selector(self.name)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every child and pod."""
        return {
            **self.selector,
            MANAGED_BY[0]: MANAGED_BY[1],
            "app.kubernetes.io/part-of": "graphpod",
            OWNER_LABEL: self.name,
        }

    @property
    def workload_labels(self) -> dict[str, str]:
        """Labels of the Deployment and its pods."""
        return self.labels | ({QUEUE_LABEL: self.queue} if self.queue is not None else {})

    def revision_name(self, revision: str) -> str:
        """Name of the ControllerRevision that keeps a rendering."""
        return f"{self.name}-{revision}"

    def config_name(self, config_hash: str) -> str:
        """Name of the ConfigMap that holds the bytes of `config_hash`."""
        return config_name(self.name, config_hash)

    def child(self, resource: Resource, name: str, labels: dict[str, str] | None = None, **fields: Any) -> Body:
        """A child's body: identity, labels (those of every child, if none are given), owner, then `fields`."""
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": labels if labels is not None else self.labels,
                "ownerReferences": [
                    {"apiVersion": API_VERSION, "kind": KIND, "name": self.name, "uid": self.uid, "controller": True}
                ],
            },
            **fields,
        }
