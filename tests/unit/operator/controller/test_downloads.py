"""A service whose weights are downloaded: one Job, the pods after it, and what is said meanwhile."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from graphpod_operator.cache.claim import Stored
from graphpod_operator.cache.key import Key
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.controller.reconcile import HeldUp
from graphpod_operator.intent.asked_downloads import Download
from graphpod_operator.kube.cluster import ServerRefused
from graphpod_operator.kube.resources import Resource
from graphpod_sources import problem
from graphpod_sources.problem import Problem
from tests.unit.operator.downloads import DOWNLOAD, MODEL, URI, claim, downloading, ends, job_pod, the_job
from tests.unit.operator.objects import NAMESPACE, UID, inference_service, pod, report
from tests.unit.operator.world import World

DONE = {"code": 0, "phase": "Complete", "commit": "abc123", "bytes": 17_300_000_000}
DOWNLOAD_OWN = Download(DOWNLOAD.uri, "demo-weights")
STORED = f"models.graphpod.dev/{DOWNLOAD.folder}"
OTHER = Key(NAMESPACE, "other")


@pytest.fixture
async def fetching(world: World) -> World:
    world.cluster.put(Resource.PersistentVolumeClaim, claim())
    await downloading(world)
    await world.reconcile()
    return world


def of(world: World, kind: Resource) -> list[str]:
    return [name for resource, _, name in world.cluster.objects if resource is kind]


def remove(world: World, kind: Resource, name: str) -> None:
    """Somebody deletes an object, and the operator hears of it."""
    world.informer.deleted(kind, world.cluster.objects.pop((kind, NAMESPACE, name)))


async def test_pods_are_created_once_the_weights_are_there(fetching: World) -> None:
    world = fetching
    assert of(world, Resource.Job) == [DOWNLOAD.job]
    assert of(world, Resource.Deployment) == []
    assert world.service["status"]["phase"] == "Downloading"
    await ends(world, "Complete", DONE)
    assert of(world, Resource.Job) == []
    await world.reconcile()
    assert of(world, Resource.Deployment) == ["demo"]
    template = world.deployment["spec"]["template"]["spec"]
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}} in template["volumes"]
    config = next(body for (kind, _, _), body in world.cluster.objects.items() if kind is Resource.ConfigMap)
    assert json.loads(config["data"]["engine.json"])["model"]["path"] == f"/model/{DOWNLOAD.folder}"
    metadata = world.cluster.objects[Resource.PersistentVolumeClaim, NAMESPACE, "shared"]["metadata"]
    stored = {"uri": URI, "commit": "abc123", "bytes": 17_300_000_000, "claim": metadata["uid"]}
    assert json.loads(metadata["annotations"][STORED]) == stored
    assert world.service["status"]["model"]["commit"] == "abc123"
    assert world.service["status"]["model"]["download"] == "complete, 16.1 GiB"


async def test_progress_is_said_in_words(fetching: World) -> None:
    world = fetching
    world.write(Resource.Pod, job_pod(the_job(world)["metadata"]["uid"]))
    world.ports.fetched = {
        "phase": "Downloading", "bytes": 13_314_398_617, "totalBytes": 17_287_143_424, "bytesPerSecond": 410_000_000,
        "secondsLeft": 9, "files": 2, "totalFiles": 4, "commit": "abc123",
    }  # fmt: skip
    world.clock.now += 10
    assert await world.reconcile() == pytest.approx(5.0)
    words = "12.4 of 16.1 GiB, 410 MB/s, about 9 s left"
    assert world.condition("ModelAvailable") == ("False", "Downloading")
    assert world.message("ModelAvailable").startswith(f"{words}: {URI}")
    assert world.condition("Ready") == ("False", "Downloading")
    assert world.service["status"]["phase"] == "Downloading"
    assert world.service["status"]["model"] == {
        "claim": "shared", "folder": DOWNLOAD.folder, "commit": "abc123", "download": words
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ({"waiting": {"reason": "ContainerCreating"}}, "Downloading", URI),
        ({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}, "DownloadPending", "no such image"),
    ],
)
async def test_a_pod_that_cannot_begin_is_told_from_one_that_begins(
    fetching: World, status: dict[str, Any], reason: str, words: str
) -> None:
    fetching.write(Resource.Pod, job_pod(the_job(fetching)["metadata"]["uid"], **status))
    fetching.clock.now += 10
    await fetching.reconcile()
    assert fetching.condition("ModelAvailable") == ("False", reason)
    assert words in fetching.message("ModelAvailable")


@pytest.mark.parametrize(("cache", "name"), [({"size": "20Gi"}, "demo-weights"), ({"claim": "shared"}, "shared")])
async def test_one_job_at_a_time_uses_a_claim(world: World, cache: dict[str, str], name: str) -> None:
    """A Job knows from its creation what it may not remove: what came later would not be kept by its next attempt."""
    world.cluster.put(Resource.PersistentVolumeClaim, claim())
    await downloading(world, model={"uri": URI, "cache": cache})
    await world.settle()
    (first,) = of(world, Resource.Job)
    second = inference_service("other", model={"uri": "hf://org/second", "cache": {"claim": name}})
    second["metadata"]["uid"] = "another"
    world.write(Resource.InferenceService, second)
    await world.reconciler.reconcile(OTHER)
    assert of(world, Resource.Job) == [first]
    said = world.cluster.objects[Resource.InferenceService, NAMESPACE, "other"]["status"]["conditions"]
    (model,) = (one for one in said if one["type"] == "ModelAvailable")
    assert model["reason"] == "DownloadPending"
    assert model["message"].startswith(f"waits for Job {first}, which uses the same claim")
    await ends(world, "Complete", DONE, Download(DOWNLOAD.uri, name))
    await world.reconciler.reconcile(OTHER)
    (job,) = of(world, Resource.Job)
    assert job != first


async def test_services_planned_at_the_same_moment_begin_one_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cluster.put(Resource.PersistentVolumeClaim, claim())
    await downloading(world)
    second = inference_service("other", model={"uri": "hf://org/second", "cache": {"claim": "shared"}})
    second["metadata"]["uid"] = "another"
    world.write(Resource.InferenceService, second)
    get = world.cluster.get

    async def slow(resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        await asyncio.sleep(0)
        return await get(resource, namespace, name)

    monkeypatch.setattr(world.cluster, "get", slow)
    await asyncio.gather(world.reconcile(), world.reconciler.reconcile(OTHER))
    assert len(of(world, Resource.Job)) == 1


async def test_a_failed_job_is_not_tried_again_beside_another_on_its_claim(fetching: World) -> None:
    world = fetching
    await ends(world, "Failed", {"code": 65, "phase": "Failed", "reason": "Unauthorized", "message": "401"})
    second = inference_service("other", model={"uri": "hf://org/second", "cache": {"claim": "shared"}})
    second["metadata"]["uid"] = "another"
    world.write(Resource.InferenceService, second)
    await world.reconciler.reconcile(OTHER)
    before = the_job(world)
    assert len(of(world, Resource.Job)) == 2
    await world.edit(model={**MODEL, "secretRef": {"name": "token"}})
    await world.reconcile()
    assert the_job(world) == before


async def test_downloads_that_make_room_follow_one_another(world: World) -> None:
    draft = {"speculative": {"method": "DraftModel", "draftModel": "hf://org/draft"}}
    await downloading(world, model={"uri": URI, "cache": {"size": "20Gi"}}, engine=draft)
    await world.settle()
    assert of(world, Resource.Job) == [DOWNLOAD_OWN.job]
    await ends(world, "Complete", DONE, DOWNLOAD_OWN)
    await world.settle()
    (second,) = of(world, Resource.Job)
    assert second != DOWNLOAD_OWN.job
    command = world.cluster.objects[Resource.Job, NAMESPACE, second]["spec"]["template"]["spec"]["containers"][0][
        "command"
    ]
    assert command[command.index("--keep") + 1 :] == [DOWNLOAD.folder], "the model that its draft goes with"


async def test_two_services_have_one_download_which_outlives_the_first(fetching: World) -> None:
    world = fetching
    other = inference_service("other", model=MODEL, replicas=4)
    other["metadata"]["uid"] = "another"
    world.write(Resource.InferenceService, other)
    await world.reconciler.reconcile(OTHER)
    assert [name for kind, name in world.cluster.writes if kind == "Job"] == [DOWNLOAD.job]
    assert "ownerReferences" not in the_job(world)["metadata"]
    remove(world, Resource.InferenceService, "demo")
    await world.reconcile()
    assert of(world, Resource.Job) == [DOWNLOAD.job]
    remove(world, Resource.InferenceService, "other")
    await world.reconciler.reconcile(OTHER)
    assert of(world, Resource.Job) == []


async def test_the_next_operator_finds_the_weights_complete(fetching: World) -> None:
    await ends(fetching, "Complete", DONE)
    successor = fetching.successor()
    await successor.settle()
    assert of(successor, Resource.Job) == []
    assert of(successor, Resource.Deployment) == ["demo"]


async def test_an_edited_uri_leaves_the_old_weights_serving_until_the_new_ones_are_there(fetching: World) -> None:
    world = fetching
    await ends(world, "Complete", DONE)
    await world.settle()
    before = world.deployment["spec"]["template"]
    edited = {**MODEL, "uri": "hf://org/name@v2"}
    await world.edit(model=edited)
    for _ in range(3):
        await world.reconcile()
    assert world.deployment["spec"]["template"] == before
    (job,) = of(world, Resource.Job)
    assert job != DOWNLOAD.job
    assert world.condition("ModelAvailable") == ("False", "Downloading")
    await world.edit(model=edited, replicas=3)
    await world.reconcile()
    assert world.deployment["spec"]["replicas"] == 3, "what runs is scaled meanwhile"
    assert world.deployment["spec"]["template"] == before
    world.discovery.served.add(Resource.LeaderWorkerSet)
    await world.optional.look()
    scaled = {"autoscaling": {"min": 1, "max": 4, "target": 4}}
    await world.edit(model=edited, parallelism={"pipeline": 2, "nodes": 2}, **scaled)
    await world.reconcile()
    target = world.cluster.objects[Resource.HorizontalPodAutoscaler, NAMESPACE, "demo"]["spec"]["scaleTargetRef"]
    assert target["kind"] == "Deployment", "its groups come with the weights"
    await world.edit()  # back to weights on a claim
    await world.settle()
    assert of(world, Resource.Job) == [], "nobody uses it any more"


@pytest.mark.parametrize("why", list(problem.Reason))
async def test_each_failure_has_its_reason_and_next_step(fetching: World, why: problem.Reason) -> None:
    world, word = fetching, why.value
    message = Problem(why, "hub said: no").message
    await ends(world, "Failed", {"code": 65, "phase": "Failed", "reason": word, "message": message})
    reason = Reason[f"Download{word}"]
    assert world.condition("ModelAvailable") == ("False", reason.name)
    assert world.condition("Stalled") == ("True", reason.name)
    message = world.message("ModelAvailable")
    assert message.startswith(f"Job {DOWNLOAD.job}: hub said: no; ")
    assert "JOB" not in message
    assert "NAMESPACE" not in message


@pytest.mark.parametrize(
    "ended", [{"code": 1}, {"code": 65, "phase": 7}, {"code": 65, "phase": "Failed", "reason": "Invented"}]
)
async def test_a_failure_without_words_of_ours_is_one_all_the_same(fetching: World, ended: dict[str, Any]) -> None:
    await ends(fetching, "Failed", ended)
    assert fetching.condition("ModelAvailable") == ("False", "DownloadFailed")


async def test_a_failed_job_stays_until_it_is_deleted_or_another_secret_is_named(fetching: World) -> None:
    world = fetching
    failed = {"code": 65, "phase": "Failed", "reason": "Unauthorized", "message": "401"}
    await ends(world, "Failed", failed)
    writes = len(world.cluster.writes)
    await world.settle()
    assert [write for write in world.cluster.writes[writes:] if "Job" in write[0]] == []
    secret = {**MODEL, "secretRef": {"name": "token"}}
    await world.edit(model=secret)
    await world.reconcile()
    tried = json.loads(the_job(world)["metadata"]["annotations"]["graphpod.dev/secrets-tried"])
    assert tried == ["", "token"]
    await ends(world, "Failed", failed)
    await world.edit()
    await world.edit(model=MODEL)
    before = the_job(world)
    await world.settle()
    assert the_job(world) == before, "neither Secret is tried twice, whoever names it"
    remove(world, Resource.Job, DOWNLOAD.job)
    await world.reconcile()
    assert the_job(world)["metadata"]["uid"] != before["metadata"]["uid"]


async def test_a_claim_that_is_missing_or_of_one_node_is_said_before_any_pod_hangs(world: World) -> None:
    await downloading(world)
    await world.reconcile()
    assert world.condition("ModelAvailable") == ("False", "CacheClaimNotFound")
    assert of(world, Resource.Job) == []
    world.cluster.put(Resource.PersistentVolumeClaim, claim(modes=("ReadWriteOnce",)))
    await world.edit(model=MODEL, replicas=2)
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "ClaimOfOneNode")
    assert of(world, Resource.Job) == []
    world.discovery.served.add(Resource.LeaderWorkerSet)
    await world.optional.look()
    await world.edit(model=MODEL, parallelism={"pipeline": 2, "nodes": 2})
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "ClaimOfOneNode"), "one replica on two nodes"
    await world.edit(model=MODEL, replicas=2, placement={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    await world.reconcile()
    assert of(world, Resource.Job) == [DOWNLOAD.job]


@pytest.mark.parametrize("retain", [True, False])
async def test_a_claim_of_a_size_is_created_and_goes_with_the_service_only_if_asked(world: World, retain: bool) -> None:
    await downloading(world, model={"uri": URI, "cache": {"size": "20Gi", "retain": retain}})
    await world.settle()
    made = world.cluster.objects[Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"]
    assert made["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    assert ("ownerReferences" in made["metadata"]) == (not retain)
    (job,) = (body for (kind, _, _), body in world.cluster.objects.items() if kind is Resource.Job)
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--size") + 1] == str(20 * 2**30)


@pytest.mark.parametrize("retain", [True, False])
async def test_a_claim_follows_a_change_of_retain(world: World, retain: bool) -> None:
    model = {"uri": URI, "cache": {"size": "20Gi", "retain": retain}}
    await downloading(world, model=model)
    await world.settle()
    place = Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"
    assert ("ownerReferences" in world.cluster.objects[place]["metadata"]) == (not retain)
    await world.edit(model={**model, "cache": {"size": "20Gi", "retain": not retain}})
    await world.settle()
    assert ("ownerReferences" in world.cluster.objects[place]["metadata"]) == retain
    assert [kind for kind, _ in world.cluster.writes].count("PersistentVolumeClaim") == 2


async def test_an_owner_that_somebody_else_wrote_is_left_alone(world: World) -> None:
    await downloading(world, model={"uri": URI, "cache": {"size": "20Gi"}})
    await world.settle()
    place = Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"
    for uid in (UID, "of-another"):
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "any", "uid": uid, "controller": True}
        world.cluster.objects[place]["metadata"]["ownerReferences"] = [owner]
        world.clock.now += 60
        await world.settle()
    assert [kind for kind, _ in world.cluster.writes].count("PersistentVolumeClaim") == 1


@pytest.mark.parametrize(
    ("live", "asked", "applied"),
    [("30Gi", "20Gi", "30Gi"), ("1Ei", "20Gi", "1Ei"), ("20Gi", "30Gi", "30Gi"), ("10Gi", "20Gi", "20Gi")],
)
async def test_no_claim_shrinks_or_changes_its_mode(world: World, live: str, asked: str, applied: str) -> None:
    """Enlarged by hand or by an autoresizer, whose field the size is then; its mode can be no other."""
    await downloading(world, model={"uri": URI, "cache": {"size": "20Gi"}})
    await world.settle()
    made = world.cluster.objects[Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"]
    made["spec"]["resources"]["requests"]["storage"] = live
    made["spec"]["accessModes"] = ["ReadWriteOnce"]
    if live != "20Gi":
        ours = made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
        ours.pop("f:resources")
    world.clock.now += 60
    await world.edit(model={"uri": URI, "cache": {"size": asked, "accessMode": "ReadWriteMany"}})
    await world.settle()
    stored = world.cluster.objects[Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"]
    assert stored["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": applied}}}
    writes = len(world.cluster.writes)
    world.clock.now += 60
    await world.settle()
    assert [kind for kind, _ in world.cluster.writes[writes:]].count("PersistentVolumeClaim") == 0


async def test_a_claim_that_was_refused_is_read_again(world: World) -> None:
    """It may have grown since it was read, within the seconds for which it is believed."""
    await downloading(world, model={"uri": URI, "cache": {"size": "20Gi"}})
    await world.settle()
    made = world.cluster.objects[Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"]
    made["spec"]["resources"]["requests"]["storage"] = "40Gi"

    def grown(method: str, resource: Resource) -> None:
        if (method, resource) == ("apply", Resource.PersistentVolumeClaim):
            raise ServerRefused(422, "field can not be less than previous value")

    world.cluster.refuse = grown
    await world.edit(model={"uri": URI, "cache": {"size": "30Gi"}})
    with contextlib.suppress(ServerRefused, HeldUp):
        await world.reconcile()
    world.cluster.refuse = lambda method, resource: None
    await world.settle()
    stored = world.cluster.objects[Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"]
    assert stored["spec"]["resources"] == {"requests": {"storage": "40Gi"}}


async def test_a_claim_of_somebody_else_by_that_name_is_left_alone(world: World) -> None:
    before = world.cluster.put(Resource.PersistentVolumeClaim, claim("demo-weights"))
    await downloading(world, model={"uri": URI, "cache": {"size": "20Gi"}})
    await world.settle()
    assert world.condition("Accepted") == ("False", "NameCollision")
    assert world.cluster.objects[Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"] == before
    assert of(world, Resource.Job) == []


async def test_a_job_of_somebody_else_by_that_name_is_left_alone(world: World) -> None:
    world.cluster.put(Resource.PersistentVolumeClaim, claim())
    before = world.cluster.put(Resource.Job, {"metadata": {"name": DOWNLOAD.job, "namespace": NAMESPACE}})
    await downloading(world)
    await world.settle()
    assert world.condition("Accepted") == ("False", "NameCollision")
    assert the_job(world) == before


async def test_room_is_made_of_folders_that_no_service_uses_and_those_count_as_complete_no_longer(world: World) -> None:
    await downloading(world, model={"uri": URI, "cache": {"size": "20Gi"}})
    await world.settle()
    await ends(world, "Complete", DONE, DOWNLOAD_OWN)
    await world.settle()
    place = Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"
    metadata = world.cluster.objects[place]["metadata"]
    metadata["annotations"]["models.graphpod.dev/old-1"] = Stored("hf://a/b", claim=metadata["uid"]).text
    world.clock.now += 60
    await world.edit(model={"uri": "hf://org/name@v2", "cache": {"size": "20Gi"}})
    await world.reconcile()
    (job,) = (body for (kind, _, _), body in world.cluster.objects.items() if kind is Resource.Job)
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--keep") + 1 :] == [DOWNLOAD.folder], "its pods run from it"
    stored = [key for key in world.cluster.objects[place]["metadata"]["annotations"] if key.startswith("models.")]
    assert stored == [STORED]


async def test_paused_nothing_is_downloaded(world: World) -> None:
    world.cluster.put(Resource.PersistentVolumeClaim, claim())
    manifest = inference_service(model=MODEL)
    manifest["metadata"]["annotations"] = {"graphpod.dev/paused": "true"}
    world.cluster.put(Resource.InferenceService, manifest)
    await world.settle()
    assert of(world, Resource.Job) == []


async def test_a_service_that_serves_says_nothing_of_a_download_that_is_made_again(fetching: World) -> None:
    world = fetching
    await ends(world, "Complete", DONE)
    await world.settle()
    annotations = world.deployment["spec"]["template"]["metadata"]["annotations"]
    world.ports.report = report(config_hash=annotations["graphpod.dev/config-hash"])
    template = annotations["graphpod.dev/template"]
    world.write(Resource.Pod, pod(config_hash=annotations["graphpod.dev/config-hash"], template=template, ready=True))
    world.cluster.objects[Resource.PersistentVolumeClaim, NAMESPACE, "shared"]["metadata"]["annotations"] = {}
    world.clock.now += 60
    await world.settle()
    assert of(world, Resource.Job) == [DOWNLOAD.job], "another pod may need it"
    assert world.condition("ModelAvailable") == ("True", "Loaded")
    assert of(world, Resource.Deployment) == ["demo"]
