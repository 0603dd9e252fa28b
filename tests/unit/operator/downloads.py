"""Objects of downloads: a claim, a Job as its controller reports it, its pod."""

import json
from typing import Any

from graphpod_operator.intent.asked_downloads import Download, downloads
from graphpod_operator.kube.resources import Resource
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import World

URI = "hf://org/name@main"
MODEL = {"uri": URI, "cache": {"claim": "shared"}}
(DOWNLOAD,) = downloads("demo", {"model": MODEL})


def claim(name: str = "shared", modes: tuple[str, ...] = ("ReadWriteMany",), **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {"accessModes": list(modes)},
    }


def job_pod(uid: str, name: str = "fetch-1", ended: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    """A pod of the Job of this uid. `ended` is what it reported at its end, with its exit code under `code`."""
    container = {
        "name": "fetch",
        "containerID": "" if "waiting" in state else "c://1",
        "state": state or {"running": {}},
    }
    if ended is not None:
        said = {key: value for key, value in ended.items() if key != "code"}
        container["state"] = {"terminated": {"exitCode": ended["code"], "message": json.dumps(said)}}
    controller = {"apiVersion": "batch/v1", "kind": "Job", "name": DOWNLOAD.job, "uid": uid, "controller": True}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [controller]},
        "status": {"podIP": "10.0.0.9", "containerStatuses": [container]},
    }


async def downloading(world: World, **spec: Any) -> World:
    """A service `demo` whose weights come from a hub."""
    world.cluster.put(Resource.InferenceService, inference_service(**{"model": MODEL, **spec}))
    await world.relist()
    return world


def the_job(world: World, download: Download = DOWNLOAD) -> dict[str, Any]:
    """The Job as it is stored."""
    return world.cluster.objects[Resource.Job, NAMESPACE, download.job]


async def ends(world: World, kind: str, ended: dict[str, Any], download: Download = DOWNLOAD) -> None:
    """The Job's pod ends, and then the Job as its controller finds."""
    job = the_job(world, download)
    world.write(Resource.Pod, job_pod(job["metadata"]["uid"], f"{download.job}-1", ended))
    status = {"conditions": [{"type": kind, "status": "True", "message": "the Job's controller says so"}]}
    world.write(Resource.Job, {**job, "status": status})
    await world.reconcile()
