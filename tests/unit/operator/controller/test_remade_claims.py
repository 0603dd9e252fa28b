"""Claims that are not the one they were: deleted and made again, of another class, or held by pods of one node."""

import json
from typing import Any

import pytest

from graphpod_operator.cache.claim import Claim, Stored
from graphpod_operator.cache.key import Key
from graphpod_operator.kube.resources import Resource
from tests.unit.operator.downloads import DOWNLOAD, URI, claim, downloading, ends, job_pod, the_job
from tests.unit.operator.objects import NAMESPACE, inference_service, pod
from tests.unit.operator.world import World

DONE = {"code": 0, "phase": "Complete", "commit": "abc123", "bytes": 1}
CLAIM = Resource.PersistentVolumeClaim, NAMESPACE, "shared"
STORED = f"models.graphpod.dev/{DOWNLOAD.folder}"
POLICY = Resource.NetworkPolicy, NAMESPACE, DOWNLOAD.job


def remade(world: World, **annotations: str) -> None:
    """The claim is deleted, and one of its name is made."""
    del world.cluster.objects[CLAIM]
    world.cluster.put(CLAIM[0], claim(**annotations))
    world.clock.now += 60


@pytest.mark.parametrize("kept", [False, True], ids=["bare", "with the annotations of the other"])
async def test_a_claim_that_was_made_again_is_downloaded_to_again(world: World, kept: bool) -> None:
    world.cluster.put(CLAIM[0], claim())
    await downloading(world)
    await world.reconcile()
    await ends(world, "Complete", DONE)
    before = world.cluster.objects[CLAIM]["metadata"]
    assert json.loads(before["annotations"][STORED])["claim"] == before["uid"]
    remade(world, **(before["annotations"] if kept else {}))
    await world.reconcile()
    assert the_job(world)["metadata"]["annotations"]["graphpod.dev/claim-uid"] != before["uid"]
    await ends(world, "Complete", DONE)
    after = world.cluster.objects[CLAIM]["metadata"]
    assert json.loads(after["annotations"][STORED])["claim"] == after["uid"]
    await world.settle()
    assert (Resource.Job, NAMESPACE, DOWNLOAD.job) not in world.cluster.objects


@pytest.mark.parametrize("kind", ["Failed", "Complete"])
async def test_a_job_that_ended_on_the_earlier_claim_is_made_again(world: World, kind: str) -> None:
    """A disk that was too small may be large enough now; what was downloaded is not on the new one."""
    world.cluster.put(CLAIM[0], claim())
    await downloading(world)
    await world.reconcile()
    first = the_job(world)
    remade(world)
    world.write(Resource.Pod, job_pod(first["metadata"]["uid"], ended=DONE))
    world.write(Resource.Job, {**first, "status": {"conditions": [{"type": kind, "status": "True", "message": "x"}]}})
    await world.settle()
    assert the_job(world)["metadata"]["uid"] != first["metadata"]["uid"]
    assert STORED not in (world.cluster.objects[CLAIM]["metadata"].get("annotations") or {})


@pytest.mark.parametrize("text", ["abc", "", "{}", '{"claim": "other"}', '{"uri": 1}', "[" * 1000])
def test_what_nobody_wrote_down_of_this_claim_is_not_on_it(text: str) -> None:
    raw = claim(**{STORED: text, "models.graphpod.dev/right": Stored(URI, claim="u").text})
    raw["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    assert list(Claim.of(raw).stored) == ["right"]


@pytest.mark.parametrize("live", ["fast", None])
async def test_a_changed_class_is_said_before_the_api_server_says_it(world: World, live: str | None) -> None:
    cache = {"size": "20Gi", **({"storageClassName": live} if live else {})}
    await downloading(world, model={"uri": URI, "cache": cache})
    await world.settle()
    writes = len(world.cluster.writes)
    world.clock.now += 60
    await world.edit(model={"uri": URI, "cache": {**cache, "storageClassName": "slow"}})
    await world.settle()
    assert [kind for kind, _ in world.cluster.writes[writes:]].count("PersistentVolumeClaim") == 0
    assert world.condition("Accepted") == ("False", "CacheClaimImmutable")
    named = f"has class {live or 'none'}, and spec.model.cache.storageClassName is slow"
    assert named in world.message("Accepted")
    await world.edit(model={"uri": URI, "cache": cache})
    await world.settle()
    assert world.condition("Accepted")[0] == "True"


async def test_a_class_that_the_spec_names_no_more_stays(world: World) -> None:
    await downloading(world, model={"uri": URI, "cache": {"size": "20Gi", "storageClassName": "fast"}})
    await world.settle()
    world.clock.now += 60
    await world.edit(model={"uri": URI, "cache": {"size": "30Gi"}})
    await world.settle()
    spec = world.cluster.objects[Resource.PersistentVolumeClaim, NAMESPACE, "demo-weights"]["spec"]
    assert (spec["storageClassName"], spec["resources"]["requests"]["storage"]) == ("fast", "30Gi")


async def held(world: World, modes: tuple[str, ...]) -> World:
    """A service `other` whose pod mounts the claim on its node, and `demo`, which wants another model on it."""
    world.cluster.put(CLAIM[0], claim(modes=modes))
    other = inference_service("other", model={"uri": "pvc://shared/filled"})
    other["metadata"]["uid"] = "another"
    world.cluster.put(Resource.InferenceService, other)
    await downloading(world)
    await world.reconciler.reconcile(Key(NAMESPACE, "other"))
    made = world.cluster.objects[Resource.Deployment, NAMESPACE, "other"]["spec"]["template"]["metadata"]["annotations"]
    running = pod("other-abc-1", made["graphpod.dev/config-hash"])
    running["metadata"]["labels"]["graphpod.dev/inferenceservice"] = "other"
    running["metadata"]["ownerReferences"][0]["name"] = "other-abc"
    running["spec"] = {"nodeName": "node-1"}
    world.write(Resource.Pod, running)
    return world


def affinity(job: dict[str, Any]) -> list[str]:
    """The services on whose pods' node the Job must run."""
    terms = job["spec"]["template"]["spec"].get("affinity", {}).get("podAffinity", {})
    (only,) = terms.get("requiredDuringSchedulingIgnoredDuringExecution", [None])
    if only is None:
        return []
    assert only["topologyKey"] == "kubernetes.io/hostname"
    (expression,) = only["labelSelector"]["matchExpressions"]
    return list(expression["values"])


@pytest.mark.parametrize(("mode", "near"), [("ReadWriteOnce", ["other"]), ("ReadWriteMany", [])])
async def test_a_job_runs_where_a_claim_of_one_node_is_held(world: World, mode: str, near: list[str]) -> None:
    await held(world, (mode,))
    await world.reconcile()
    assert affinity(the_job(world)) == near


async def test_a_job_that_waits_for_pods_that_left_is_made_again(world: World) -> None:
    await held(world, ("ReadWriteOnce",))
    await world.reconcile()
    first = the_job(world)
    assert affinity(first) == ["other"]
    waits = job_pod(first["metadata"]["uid"], waiting={})
    waits["status"]["containerStatuses"] = []
    waits["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 1 Insufficient cpu"}
    ]
    world.write(Resource.Pod, waits)
    await world.reconcile()
    assert world.condition("ModelAvailable") == ("False", "DownloadPending")
    message = world.message("ModelAvailable")
    assert "it must run on the node of other, where ReadWriteOnce claim shared is" in message
    assert message.endswith("; make room on that node, or use a claim that is ReadWriteMany")
    (place,) = (key for key, body in world.cluster.objects.items() if body.get("spec", {}).get("nodeName") == "node-1")
    world.informer.deleted(Resource.Pod, world.cluster.objects.pop(place))
    await world.settle()
    assert affinity(the_job(world)) == []
    assert the_job(world)["metadata"]["uid"] != first["metadata"]["uid"]
