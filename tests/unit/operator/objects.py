"""Objects of the tests: an InferenceService, a pod, a warm-up report, as the API server and the engine give them."""

import functools
from typing import Any

from graphpod_operator.cache.child import Child, ControllerRef, DeploymentRollout
from graphpod_operator.cache.controller_revision import StoredRevision
from graphpod_operator.cache.service import Service
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.installation import Installation
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused

Manifest = dict[str, Any]
IMAGE = "graphpod.dev/runtime:test"
IMAGES = Images(IMAGE, "graphpod.dev/runtime:test-gpu")
INSTALLED = Installation(IMAGES)
NAMESPACE = "ns"
UID = "11111111-2222-3333-4444-555555555555"


def inference_service(name: str = "demo", status: Manifest | None = None, **spec: Any) -> Manifest:
    return {
        "apiVersion": "graphpod.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": UID, "resourceVersion": "1", "generation": 1},
        "spec": {"model": {"uri": "pvc://weights/model"}, **spec},
        **({"status": status} if status else {}),
    }


def outcome(**spec: Any) -> Desired | Refused:
    """What the planner makes of a spec."""
    return desire(PlanInput(Service.of(inference_service(**spec)), INSTALLED))


def planned(**spec: Any) -> Desired:
    """The plan of a service that can run."""
    wanted = outcome(**spec)
    assert isinstance(wanted, Desired), wanted
    return wanted


@functools.cache
def plain_template() -> str:
    """Fingerprint of the pods of a service with a plain spec."""
    return planned().template


def pod(
    name: str = "demo-abc-1",
    config_hash: str = "hash",
    template: str | None = None,
    ready: bool = False,
    running: bool = True,
    container: str = "containerd://1",
    restarts: int = 0,
    status: Manifest | None = None,
    engine: Manifest | None = None,
) -> Manifest:
    """A pod of service `demo`; `engine` replaces parts of its container's status. Without a `template` it has the form
    of a service with a plain spec.
    """
    container_status = {
        "name": "engine",
        "containerID": container,
        "restartCount": restarts,
        "state": {"running": {}} if running else {},
        **(engine or {}),
    }
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "resourceVersion": "5",
            "labels": {"graphpod.dev/inferenceservice": "demo", "pod-template-hash": "abc"},
            "annotations": {
                "graphpod.dev/config-hash": config_hash,
                "graphpod.dev/template": plain_template() if template is None else template,
            },
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "demo-abc", "uid": "rs", "controller": True}
            ],
        },
        "status": {
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [container_status],
            **(status or {}),
        },
    }


def report(
    name: str = "demo-abc-1",
    config_hash: str = "hash",
    state: str = "Ready",
    prefill: str = "Breakable",
    decode: str = "Full",
    captured: tuple[int, int] = (22, 4),
    **changes: Any,
) -> Manifest:
    """What `/warmup` of a pod answers."""
    policies = {"prefill": prefill, "decode": decode}
    return {
        "podUID": f"uid-{name}",
        "configHash": config_hash,
        "backend": "Recorder",
        "state": state,
        "terminal": state in ("Ready", "Failed"),
        "graph": {
            phase: {
                "requested": "Auto",
                "planned": policy,
                "effective": policy,
                "sizes": {"planned": planned, "captured": count, "failed": 0},
                "captureSeconds": 1.0,
                "selfCheck": "Passed",
            }
            for (phase, policy), planned, count in zip(policies.items(), (22, 4), captured, strict=True)
        },
        "decisions": [],
        "failure": None,
        **changes,
    }


def rollout(replicas: int = 1, updated: int = 1, available: int = 1, **changes: Any) -> DeploymentRollout:
    """What a Deployment's controller says."""
    deployment = {
        "metadata": {"generation": 1},
        "status": {
            "observedGeneration": 1,
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": available,
            "availableReplicas": available,
            **changes,
        },
    }
    return DeploymentRollout.of(deployment)


def child(resource: Resource, name: str = "demo", version: int = 1, uid: str = "u", **metadata: Any) -> Child:
    """A child as the store keeps it."""
    labels = {"graphpod.dev/inferenceservice": "demo"}
    raw = {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": labels,
            **metadata,
        }
    }
    return Child.of(resource, raw)


def as_live(wanted: DesiredChild, **changes: Any) -> Child:
    """The child as the cluster has it after we applied it."""
    return Child(
        **{
            "resource": wanted.resource,
            "namespace": wanted.namespace,
            "name": wanted.name,
            "uid": f"uid-{wanted.resource.kind}",
            "version": 1,
            "key": None,
            "controller": ControllerRef("graphpod.dev", "InferenceService", "demo", UID),
            "deleting": False,
            "owned": wanted.owned,
            "applied": wanted.owned,
            "rollout": None,
            **changes,
        }
    )


def remembered(wanted: Desired, number: int = 1) -> Child:
    """The ControllerRevision of a plan, as the cluster has it."""
    (memory,) = [child for child in wanted.children if child.resource is Resource.ControllerRevision]
    return as_live(memory, kept=StoredRevision.of({**memory.body, "revision": number}))
