"""A download whose pod never gets as far as its container: what is said of it, and when its Job is replaced."""

import json

import pytest

from graphpod_operator.kube.resources import Resource
from tests.unit.operator.downloads import DOWNLOAD, MODEL, claim, downloading, job_pod, the_job
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import World

UNPREPARED = {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": "2025-12-31T23:58:00Z"}
TYPED_WRONG = {**MODEL, "secretRef": {"name": "tokne"}}


@pytest.fixture
async def stuck(world: World) -> World:
    """A download whose pod never gets as far as its container: its Secret does not exist."""
    world.cluster.put(Resource.PersistentVolumeClaim, claim())
    await downloading(world, model=TYPED_WRONG)
    await world.reconcile()
    waits = job_pod(the_job(world)["metadata"]["uid"], waiting={"reason": "ContainerCreating"})
    waits["status"]["conditions"] = [UNPREPARED]
    world.write(Resource.Pod, waits)
    return world


async def test_a_pod_that_is_not_prepared_says_what_it_mounts_and_what_to_do(stuck: World) -> None:
    await stuck.reconcile()
    assert stuck.condition("ModelAvailable") == ("False", "DownloadPending")
    assert stuck.message("ModelAvailable") == (
        "for over a minute its pod is not prepared, which mounts Secret tokne and PersistentVolumeClaim shared; "
        f"create or correct them, then: kubectl -n {NAMESPACE} delete job {DOWNLOAD.job}"
    )


@pytest.mark.parametrize(
    ("since", "reason"),
    [("2025-12-31T23:59:39Z", "DownloadPending"), ("2025-12-31T23:59:41Z", "Downloading")],
)
async def test_a_pod_is_given_a_minute_to_be_prepared(stuck: World, since: str, reason: str) -> None:
    assert stuck.clock.timestamp() == "2026-01-01T00:00:40Z"
    waits = job_pod(the_job(stuck)["metadata"]["uid"], waiting={"reason": "ContainerCreating"})
    waits["status"]["conditions"] = [{**UNPREPARED, "lastTransitionTime": since}]
    stuck.write(Resource.Pod, waits)
    await stuck.reconcile()
    assert stuck.condition("ModelAvailable") == ("False", reason)


@pytest.mark.parametrize(
    ("created", "reason"),
    [("2025-12-31T23:59:39Z", "DownloadPending"), ("2025-12-31T23:59:41Z", "Downloading"), (None, "Downloading")],
)
async def test_a_job_whose_pod_nobody_admits_says_how_to_find_the_cause(
    world: World, created: str | None, reason: str
) -> None:
    """Its controller writes the refusal into Events alone, which the operator does not read."""
    world.cluster.put(Resource.PersistentVolumeClaim, claim())
    await downloading(world, model=MODEL)
    await world.reconcile()
    job = the_job(world)
    job["metadata"] |= {"creationTimestamp": created} if created else {}
    world.write(Resource.Job, job)
    world.clock.now = 1000.0
    await world.reconcile()
    assert world.clock.timestamp() == "2026-01-01T00:00:40Z"
    assert world.condition("ModelAvailable") == ("False", reason)
    if reason == "DownloadPending":
        assert world.message("ModelAvailable") == (
            f"Job {DOWNLOAD.job} exists for over a minute and has no pod: a quota, a limit or a webhook may refuse "
            f"one; for the cause: kubectl -n {NAMESPACE} describe job,pod -l graphpod.dev/weights"
        )


async def test_a_job_that_never_ran_is_replaced_when_its_secret_is_named_no_more(stuck: World) -> None:
    world = stuck
    before = the_job(world)["metadata"]["uid"]
    await world.edit(model={**MODEL, "secretRef": {"name": "token"}})
    await world.settle()
    made = the_job(world)
    assert made["metadata"]["uid"] != before
    assert {"name": "credentials", "secret": {"secretName": "token"}} in made["spec"]["template"]["spec"]["volumes"]
    tried = json.loads(made["metadata"]["annotations"]["graphpod.dev/secrets-tried"])
    assert tried == ["token"], "the other was not tried"


async def test_a_job_stays_while_a_service_names_its_secret_or_once_it_ran(stuck: World) -> None:
    world = stuck
    other = inference_service("other", model=TYPED_WRONG)
    other["metadata"]["uid"] = "another"
    world.write(Resource.InferenceService, other)
    before = the_job(world)["metadata"]["uid"]
    await world.edit(model={**MODEL, "secretRef": {"name": "token"}})
    await world.settle()
    assert the_job(world)["metadata"]["uid"] == before, "two services do not take it from each other"
    world.informer.deleted(
        Resource.InferenceService, world.cluster.objects.pop((Resource.InferenceService, NAMESPACE, "other"))
    )
    world.write(Resource.Pod, job_pod(before))
    await world.settle()
    assert the_job(world)["metadata"]["uid"] == before, "it runs"
