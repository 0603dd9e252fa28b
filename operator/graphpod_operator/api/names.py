"""Names that the API fixes: the kind itself, our labels and annotations, and names made from others."""

from __future__ import annotations

from typing import Any

GROUP = "graphpod.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "InferenceService"
PLURAL = "inferenceservices"
SHORT_NAME = "gisvc"

NAME_MAX = 40
NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""Of a service: its name is that of a Service, too."""


GPU = "nvidia.com/gpu"
"""The resource of whole NVIDIA GPUs."""
CONTAINER = "engine"


INSTANCE_LABEL = "app.kubernetes.io/instance"
"""Has a service's name on its pods: one of the labels that select them."""
OWNER_LABEL = "graphpod.dev/inferenceservice"
HASH_ANNOTATION = "graphpod.dev/config-hash"
TEMPLATE_ANNOTATION = "graphpod.dev/template"
"""Of a pod: the fingerprint of the template it was made from."""
REVISION_ANNOTATION = "graphpod.dev/revision"
"""Of a Deployment: the rendering it was made from."""
PAUSED_ANNOTATION = "graphpod.dev/paused"
ADOPT_ANNOTATION = "graphpod.dev/adopt"
SLEEP_ANNOTATION = "graphpod.dev/sleep"
RELOAD_ANNOTATION = "graphpod.dev/reload"
CAPTURE_FAILURES_ANNOTATION = "graphpod.dev/capture-deaths"
ENGINE_TYPE = ("llm-d.ai/engine-type", "graphpod")
"""The label by which an endpoint picker of the Gateway API Inference Extension chooses whose metrics a pod has."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
MANAGED_BY = ("app.kubernetes.io/managed-by", "graphpod")


FETCH_CONTAINER = "fetch"
"""The container of a Job that downloads weights."""
CREDENTIALS_VOLUME = "credentials"
"""The volume of its pods that has the Secret."""
FOLDER_LABEL = "graphpod.dev/weights"
"""Of a Job that downloads weights, and of its pods: the folder they go to."""
CLAIM_ANNOTATION = "graphpod.dev/claim"
"""Of such a Job: the claim that has the folder."""
CLAIM_UID_ANNOTATION = "graphpod.dev/claim-uid"
"""Of such a Job: the uid of that claim. One of the same name that is made later is empty."""
NEAR_ANNOTATION = "graphpod.dev/near"
"""Of such a Job: the services on whose pods' node it must run, as JSON."""
SECRETS_ANNOTATION = "graphpod.dev/secrets-tried"
"""Of such a Job: the Secrets with which the download was tried, as JSON."""
STORED_PREFIX = "models.graphpod.dev/"
"""Beginning of a claim's annotations about complete folders: the folder's name follows."""


def claim_name(name: str) -> str:
    """Name of the claim that is created for downloads of the service `name`."""
    return f"{name}-weights"


def selector(name: str) -> dict[str, str]:
    """Labels that select the pods of the service `name`. They never change: a Deployment's selector is immutable."""
    return {"app.kubernetes.io/name": "graphpod-engine", INSTANCE_LABEL: name}


WORKER = "graphpod-worker"
"""Of the pods of a group but its leader, instead of the selector's app.kubernetes.io/name: no request goes to them."""


GROUP_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
GROUP_REVISION_LABEL = "leaderworkerset.sigs.k8s.io/template-revision-hash"
"""Labels that the controller of LeaderWorkerSets gives to pods."""


def group_selector(name: str) -> dict[str, Any]:
    """A label selector of all pods of the service `name`, where a group of them is one replica."""
    labels = selector(name)
    app = "app.kubernetes.io/name"
    both = {"key": app, "operator": "In", "values": [labels.pop(app), WORKER]}
    return {"matchLabels": labels, "matchExpressions": [both]}


def group_name(name: str) -> str:
    """Name of the LeaderWorkerSet of the service `name`. Its controller makes a headless Service of the same name, so
    it cannot be the service's own.
    """
    return f"{name}-group"


def source_hosts_name(name: str) -> str:
    """Name of the ConfigMap of the service `name` that lists the hosts its pods may stream from."""
    return f"{name}-source-hosts"


def config_name(name: str, config_hash: str) -> str:
    """Name of the ConfigMap of the service `name` that holds the bytes of `config_hash`."""
    return f"{name}-engine-{config_hash}"
