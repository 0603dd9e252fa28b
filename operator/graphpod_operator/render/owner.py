"""Who the children belong to, and what they all share: names, labels, owner references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import (
    API_VERSION,
    KIND,
    MANAGED_BY,
    OWNER_LABEL,
    QUEUE_LABEL,
    claim_name,
    config_name,
    group_selector,
    selector,
)
from graphpod_operator.api.spec import Spec
from graphpod_operator.install.installation import Installation
from graphpod_operator.intent.model_uri import ModelUri
from graphpod_operator.kube.resources import Resource

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """One InferenceService as the builders see it."""

    name: str
    namespace: str
    uid: str
    spec: Spec
    queue: str | None = None
    """The Kueue queue that the pods wait in."""
    installed: Installation = Installation()  # noqa: RUF009 (frozen)
    grouped: bool = False
    """Whether there are groups of pods, or will be."""

    @property
    def selector(self) -> dict[str, str]:
        """Labels that select the pods."""
        return selector(self.name)

    @property
    def pod_selector(self) -> dict[str, Any]:
        """A label selector of all its pods: `selector` has those alone that requests go to."""
        return group_selector(self.name) if self.grouped else {"matchLabels": self.selector}

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

    @property
    def claim(self) -> str:
        """Name of the claim that has the weights."""
        cache = self.spec.model.cache
        return ModelUri.parse(self.spec.model.uri).authority if cache is None else cache.claim or claim_name(self.name)

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
