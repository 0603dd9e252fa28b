"""A look at a service, against an API server in memory: what is written and told, and what comes of an error."""

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.controller.reconcile import HeldUp
from graphpod_operator.kube.cluster import Conflict, ServerRefused, Terminating, Unavailable
from graphpod_operator.kube.resources import AT_TIMES, CHILDREN, Resource
from graphpod_operator.observe.warmup_report import NoReading
from graphpod_operator.status.write_throttle import MOMENT_SECONDS
from tests.unit.operator.objects import NAMESPACE, inference_service, pod, report
from tests.unit.operator.world import HASH, KEY, World

ALL = [resource.kind for resource in CHILDREN if resource not in (*AT_TIMES, Resource.LeaderWorkerSet)]


async def test_the_first_reconcile_applies_every_child_then_the_status(world: World) -> None:
    await world.reconcile()
    assert world.kinds() == [*ALL, "status"]
    assert world.condition("Accepted") == ("True", "Accepted")


async def test_the_second_reconcile_and_a_restarted_operator_write_nothing(world: World) -> None:
    await world.reconcile()
    world.cluster.writes.clear()
    await world.reconcile()
    restarted = world.successor()
    await restarted.relist()
    await restarted.reconcile()
    assert world.cluster.writes == []


@pytest.mark.parametrize("refused", [False, True])
async def test_a_status_that_waits_for_a_moment_is_written_when_its_time_comes(world: World, refused: bool) -> None:
    def refuse(method: str, resource: Resource) -> None:
        if resource is Resource.Deployment and refused:
            raise ServerRefused(422, "spec.template: no good")

    async def paused() -> float | None:
        if not refused:
            return await world.reconcile()
        with pytest.raises(HeldUp) as caught:
            await world.reconcile()
        return caught.value.pause

    def observed() -> int:
        found: int = world.service["status"]["observedGeneration"]
        return found

    world.cluster.refuse = refuse
    await paused()
    told = observed()
    await world.edit(replicas=2)
    world.clock.between -= MOMENT_SECONDS
    assert await paused() == MOMENT_SECONDS
    assert observed() == told
    await paused()
    assert observed() == told + 1


async def test_a_server_that_is_away_changes_no_status(world: World) -> None:
    def away(method: str, resource: Resource) -> None:
        raise Unavailable(503, "later")

    world.cluster.refuse = away
    with pytest.raises(Unavailable):
        await world.reconcile()
    assert world.cluster.writes == []


async def test_a_quota_that_admits_no_object_is_named_as_that(world: World) -> None:
    def refuse(method: str, resource: Resource) -> None:
        if (method, resource) == ("apply", Resource.Service):
            raise ServerRefused(403, 'services "demo" is forbidden: exceeded quota: team, requested: count/services=1')

    world.cluster.refuse = refuse
    with pytest.raises(HeldUp):
        await world.reconcile()
    assert world.condition("Accepted") == ("False", "ObjectQuotaExceeded")
    assert f"raise or free the quota: kubectl -n {NAMESPACE} describe resourcequota" in world.message("Accepted")
    assert "Stalled" not in {row["type"] for row in world.service["status"]["conditions"]}
    world.cluster.refuse = lambda method, resource: None
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")


@pytest.mark.parametrize(("value", "told"), [("yes", 1), ("True", 1), ("", 1), ("true", 0), ("false", 0), (None, 0)])
async def test_a_pause_that_says_neither_yes_nor_no_is_warned_of_and_pauses_nothing(
    world: World, value: str | None, told: int
) -> None:
    world.service["metadata"]["annotations"] = {} if value is None else {"graphpod.dev/paused": value}
    world.informer.changed(Resource.InferenceService, world.cluster.put(Resource.InferenceService, world.service))
    await world.reconcile()
    await world.reconcile()
    assert len(warned := world.told("AnnotationIgnored")) == told
    assert all(
        one.startswith(f"graphpod.dev/paused is {value!r}, so the service is not paused; set it") for one in warned
    )
    assert ("Deployment", "demo") in world.cluster.writes or value == "true"


async def test_a_namespace_that_is_being_deleted_is_left_in_peace(world: World) -> None:
    def ending(method: str, resource: Resource) -> None:
        raise Terminating(403, "because it is being terminated")

    world.cluster.refuse = ending
    assert await world.reconcile() is None
    assert world.cluster.writes == []
    assert world.cluster.events == []


async def test_a_service_in_a_namespace_that_is_being_deleted_is_not_repaired_again_and_again(world: World) -> None:
    await world.reconcile()
    refused: list[str] = []

    def ending(method: str, resource: Resource) -> None:
        refused.append(f"{method} {resource.kind}")
        raise Terminating(403, "because it is being terminated")

    world.cluster.refuse = ending
    for kind, name in ((Resource.Service, "demo"), (Resource.ServiceAccount, "demo"), (Resource.Deployment, "demo")):
        del world.cluster.objects[kind, NAMESPACE, name]
        await world.relist()
        await world.reconcile()
    assert refused == ["apply Service"]


async def test_an_event_that_cannot_be_written_does_not_hold_up_the_service(world: World) -> None:
    def refuse(method: str, resource: Resource) -> None:
        if method == "event":
            raise ServerRefused(403, "no")

    world.cluster.refuse = refuse
    world.cluster.put(Resource.InferenceService, inference_service(suspend=True))
    await world.relist()
    assert await world.reconcile() is None
    assert world.condition("Ready") == ("False", "Suspended")


async def test_a_list_tells_of_deletions_that_the_watch_missed(world: World) -> None:
    await world.reconcile()
    world.put_pod(ready=True)
    world.ports.report = report(config_hash=HASH)
    await world.reconcile()
    await world.queue.take()
    world.queue.done(KEY)
    del world.cluster.objects[Resource.Pod, NAMESPACE, "demo-abc-1"]
    await world.relist()
    assert await world.queue.take() == KEY
    assert world.store.pods(KEY) == ()
    world.ports.report = None
    answers = await world.warmups.read([Pod.of(pod(config_hash=HASH))])
    assert [type(answer) for answer in answers.values()] == [NoReading], "its reading is forgotten"


async def test_a_service_that_is_gone_is_left_alone(world: World) -> None:
    world.cluster.objects.clear()
    await world.relist()
    assert await world.reconcile() is None
    assert world.cluster.writes == []


async def test_an_answer_to_a_status_that_shows_an_older_service_is_believed(world: World) -> None:
    await world.reconcile()
    place = Resource.InferenceService, KEY.namespace, KEY.name
    service = world.cluster.objects[place]
    newer = world.cluster.put(place[0], {**service, "metadata": {**service["metadata"], "generation": 2}})
    await world.relist()
    world.cluster.objects[place] = {**newer, "metadata": {**newer["metadata"], "generation": 1}}
    with pytest.raises(Conflict, match="was put back"):
        await world.reconcile()
    known = world.store.service(KEY)
    assert known is not None
    assert known.generation == 1


async def test_a_service_deleted_during_its_status_write_is_no_error(world: World) -> None:
    def gone(method: str, resource: Resource) -> None:
        if method == "apply_status":
            raise ServerRefused(404, "not found")

    world.cluster.refuse = gone
    assert await world.reconcile() is None


async def test_a_paused_service_is_reported_on_and_nothing_else_is_written(world: World) -> None:
    await world.reconcile()
    world.cluster.writes.clear()
    paused = inference_service(engine={"maxBatch": 4})
    paused["metadata"]["annotations"] = {"graphpod.dev/paused": "true"}
    world.cluster.put(Resource.InferenceService, paused)
    await world.relist()
    await world.reconcile()
    assert world.kinds() == ["status"]
    assert world.condition("Accepted") == ("True", "Paused")

    world.cluster.put(Resource.InferenceService, inference_service(engine={"maxBatch": 4}))
    await world.relist()
    await world.reconcile()
    assert "Deployment" in world.kinds()
    assert world.condition("Accepted") == ("True", "Accepted")


async def test_a_spec_that_changes_while_the_status_is_written_is_looked_at_again(world: World) -> None:
    """The answer to the write has the new spec already, so that the watch event of the change is no news any more."""
    there = Resource.InferenceService, NAMESPACE, "demo"

    def edit(method: str, resource: Resource) -> None:
        if method == "apply_status":
            world.cluster.refuse = lambda method, resource: None
            edited = {**world.cluster.objects[there], "spec": {**inference_service()["spec"], "suspend": True}}
            world.cluster.put(Resource.InferenceService, edited)

    world.cluster.refuse = edit
    assert await world.reconcile() == 0.0
    await world.reconcile()
    assert world.condition("WorkloadAvailable") == ("False", "Suspended")
