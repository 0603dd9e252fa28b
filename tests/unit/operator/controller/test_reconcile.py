"""The executor against an API server in memory: what it writes, and what it does when the server says no."""

import asyncio
import copy
from typing import Any

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.controller.reconcile import HeldUp, Reconciler
from graphpod_operator.kube.port import Conflict, ServerRefused, Terminating, Unavailable
from graphpod_operator.kube.resources import AT_TIMES, CHILDREN, Resource
from graphpod_operator.observe import warmups
from graphpod_operator.observe.reading import BORNE_SECONDS, MISSES_BORNE, NoReading
from graphpod_operator.observe.warmups import Warmups
from graphpod_operator.status.write_throttle import MOMENT_SECONDS
from graphpod_operator.watch.feed import Listed
from tests.unit.operator.objects import IMAGES, NAMESPACE, inference_service, pod, report
from tests.unit.operator.world import HASH, KEY, Ports, World

ALL = [resource.kind for resource in CHILDREN if resource not in AT_TIMES]


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


async def test_a_child_the_watch_has_not_told_of_is_looked_at_before_it_is_made(world: World) -> None:
    await world.reconcile()
    world.cluster.writes.clear()
    world.feed.listed(Listed(Resource.Service, None, (), version=10**9))
    await world.reconcile()
    assert world.cluster.writes == []


async def test_a_users_object_in_the_way_stops_everything_before_the_first_write(world: World) -> None:
    theirs = world.cluster.put(Resource.Deployment, {"metadata": {"name": "demo", "namespace": NAMESPACE}})
    pause = await world.reconcile()
    assert pause is not None
    assert world.kinds() == ["status"]
    assert world.condition("Accepted") == ("False", "NameCollision")
    assert world.cluster.objects[Resource.Deployment, NAMESPACE, "demo"] == theirs


async def test_an_object_that_appears_between_look_and_apply_is_not_taken_over(world: World) -> None:
    def intrude(method: str, resource: Resource) -> None:
        if resource is Resource.Service and method == "apply":
            world.cluster.put(Resource.Service, {"metadata": {"name": "demo", "namespace": NAMESPACE}})

    world.cluster.refuse = intrude
    with pytest.raises(Conflict):
        await world.reconcile()
    world.cluster.refuse = lambda method, resource: None
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "NameCollision")
    assert b'graphpod_operator_apply_conflicts_total{kind="Service"} 1.0' in world.meters.text()


async def test_a_repair_means_the_object_it_saw_and_never_its_successor(world: World) -> None:
    await world.reconcile()
    edited = world.cluster.objects[Resource.Service, NAMESPACE, "demo"]
    edited["metadata"]["managedFields"] = []
    world.feed.changed(Resource.Service, world.cluster.put(Resource.Service, edited))
    world.cluster.put(Resource.Service, {"metadata": {"name": "demo", "namespace": NAMESPACE, "uid": "successor"}})
    with pytest.raises(Conflict):
        await world.reconcile()
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "NameCollision")


async def test_a_server_that_changes_our_fields_does_not_make_a_loop(world: World) -> None:
    def normalise(stored: dict[str, Any]) -> None:
        if stored["kind"] == "Service":
            stored["spec"]["type"] = "Normalised"

    world.cluster.normalise = normalise
    await world.reconcile()
    world.cluster.writes.clear()
    await world.reconcile()
    assert world.cluster.writes == []


async def test_a_refused_child_is_told_with_the_servers_words_and_tried_again(world: World) -> None:
    def refuse(method: str, resource: Resource) -> None:
        if resource is Resource.Deployment:
            raise ServerRefused(422, "spec.template: no good")

    world.cluster.refuse = refuse
    with pytest.raises(HeldUp, match="no good"):
        await world.reconcile()
    assert world.condition("Accepted") == ("False", "ApplyRefused")
    world.cluster.refuse = lambda method, resource: None
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")


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
        found: int = world.cluster.objects[Resource.InferenceService, NAMESPACE, "demo"]["status"]["observedGeneration"]
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
    put_pod(world, ready=True)
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


@pytest.mark.parametrize("what", ["gone", "made-anew", "deleting"])
async def test_children_that_vanish_with_their_service_are_not_made_anew_before_its_end_is_told(
    world: World, what: str
) -> None:
    """The watches of children and of services are two: what the one tells may come before what the other does."""
    await world.reconcile()
    world.cluster.writes.clear()
    place = Resource.InferenceService, KEY.namespace, KEY.name
    service = world.cluster.objects.pop(place)
    if what == "made-anew":
        world.cluster.put(place[0], inference_service() | {"metadata": {**service["metadata"], "uid": "another"}})
    elif what == "deleting":
        metadata = {**service["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        world.cluster.put(place[0], service | {"metadata": metadata})
    world.feed.deleted(Resource.Service, world.cluster.objects.pop((Resource.Service, KEY.namespace, KEY.name)))
    with pytest.raises(Conflict, match="was deleted"):
        await world.reconcile()
    assert await world.reconcile() is None
    assert world.cluster.writes == []


@pytest.mark.parametrize("written", [False, True], ids=["by version", "by generation"])
async def test_what_vanished_with_all_that_is_newer_than_a_backup_is_made_by_the_spec_of_the_backup(
    world: World, written: bool
) -> None:
    """etcd was restored. By its version the service that is known passes for the newer one, until somebody writes."""
    place = Resource.InferenceService, KEY.namespace, KEY.name
    old = copy.deepcopy(world.cluster.objects[place])
    edited = {**old, "spec": inference_service(replicas=3)["spec"]}
    world.cluster.put(place[0], {**edited, "metadata": {**old["metadata"], "generation": 2}})
    await world.relist()
    await world.reconcile()
    budget = Resource.PodDisruptionBudget, KEY.namespace, KEY.name
    world.cluster.objects[place] = old
    if written:
        world.cluster.put(place[0], old)
    world.feed.deleted(budget[0], world.cluster.objects.pop(budget))
    world.cluster.writes.clear()
    with pytest.raises(Conflict, match="was put back"):
        await world.reconcile()
    assert world.cluster.writes == []
    await world.reconcile()
    assert budget not in world.cluster.objects
    assert world.cluster.objects[Resource.Deployment, KEY.namespace, KEY.name]["spec"]["replicas"] == 1


async def test_pods_do_not_roll_to_a_spec_that_is_newer_than_the_backup(world: World) -> None:
    """The Deployment that was put back is written by its controller, and so believed before its service is."""
    places = [(kind, KEY.namespace, KEY.name) for kind in (Resource.InferenceService, Resource.Deployment)]
    await world.reconcile()
    service, deployment = (copy.deepcopy(world.cluster.objects[place]) for place in places)
    edited = {**service, "spec": inference_service(engine={"maxBatch": 3})["spec"]}
    world.cluster.put(places[0][0], {**edited, "metadata": {**service["metadata"], "generation": 2}})
    await world.relist()
    await world.reconcile()
    world.cluster.objects[places[0]] = service
    world.feed.changed(places[1][0], world.cluster.put(places[1][0], deployment))
    world.cluster.writes.clear()
    with pytest.raises(Conflict, match="was put back"):
        await world.reconcile()
    assert world.cluster.writes == []
    await world.reconcile()
    assert (Resource.Deployment.kind, KEY.name) not in world.cluster.writes


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


async def test_an_edit_that_a_look_at_the_service_found_is_left_to_the_watch(world: World) -> None:
    """Taken in by the look, it would be known when the watch tells of it, and nobody would be queued."""
    await world.reconcile()
    place = Resource.InferenceService, KEY.namespace, KEY.name
    edited = world.cluster.put(
        place[0], {**world.cluster.objects[place], "spec": inference_service(replicas=3)["spec"]}
    )
    world.feed.deleted(Resource.Service, world.cluster.objects.pop((Resource.Service, KEY.namespace, KEY.name)))
    await world.reconcile()
    while world.queue.depth:
        world.queue.done(await world.queue.take())
    world.feed.changed(place[0], edited)
    assert world.queue.depth == 1


async def test_a_service_deleted_during_its_status_write_is_no_error(world: World) -> None:
    def gone(method: str, resource: Resource) -> None:
        if method == "apply_status":
            raise ServerRefused(404, "not found")

    world.cluster.refuse = gone
    assert await world.reconcile() is None


def put_pod(world: World, **made: Any) -> None:
    world.feed.changed(Resource.Pod, world.cluster.put(Resource.Pod, pod(config_hash=HASH, **made)))


async def test_warm_ups_are_polled_until_they_end(world: World) -> None:
    await world.reconcile()
    put_pod(world)
    world.ports.report = report(config_hash=HASH, state="Capturing", captured=(3, 0))
    assert await world.reconcile() is not None
    assert world.condition("GraphsCaptured") == ("False", "Capturing")
    world.ports.report = report(config_hash=HASH)
    assert await world.reconcile() is None
    assert world.condition("GraphsCaptured") == ("True", "Captured")


async def test_progress_alone_is_written_seldom(world: World) -> None:
    await world.reconcile()
    put_pod(world)
    for captured in range(1, 5):
        world.ports.report = report(config_hash=HASH, state="Capturing", captured=(captured, 0))
        assert await world.reconcile() is not None, "it comes back to write what it held back"
    assert world.kinds().count("status") == 2
    world.clock.now += 61
    await world.reconcile()
    assert world.kinds().count("status") == 3


async def test_a_start_costs_few_writes_however_long_it_takes(world: World) -> None:
    await world.reconcile()
    put_pod(world, running=False)
    await world.reconcile()
    put_pod(world)
    world.ports.report = report(config_hash=HASH, state="Loading", captured=(0, 0))
    await world.reconcile()
    for captured in range(27):
        world.clock.now += 9
        sizes = (min(captured, 22), max(0, captured - 22))
        world.ports.report = report(config_hash=HASH, state="Capturing", captured=sizes)
        await world.reconcile()
    world.ports.report = report(config_hash=HASH, state="SelfChecking")
    await world.reconcile()
    put_pod(world, ready=True)
    world.ports.report = report(config_hash=HASH)
    await world.reconcile()
    assert world.condition("GraphsCaptured") == ("True", "Captured")
    assert len(world.cluster.writes) + len(world.cluster.events) <= len(CHILDREN) + 8


async def test_a_silent_admin_port_is_asked_less_often_after_a_while(world: World) -> None:
    await world.reconcile()
    put_pod(world)
    pauses = [await world.reconcile() for _ in range(20)]
    assert pauses[0] is not None
    assert pauses[-1] is not None
    assert pauses[-1] > pauses[0]
    assert world.condition("GraphsCaptured") == ("Unknown", "EngineUnreachable")


async def test_a_resync_reads_terminal_warm_ups_again(world: World) -> None:
    await world.reconcile()
    put_pod(world, ready=True)
    world.ports.report = report(config_hash=HASH)
    await world.reconcile()
    world.ports.report = report(config_hash=HASH, decode="Disabled", captured=(22, 0))
    await world.reconcile()
    assert world.condition("GraphsCaptured") == ("True", "Captured")
    world.reconciler.reread([KEY])
    await world.reconcile()
    assert world.condition("GraphsCaptured") == ("True", "Degraded")


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


async def test_an_operator_that_restarts_hears_the_pods_that_serve_before_it_tells_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = pod(config_hash=HASH, ready=True)
    world.cluster.put(Resource.Pod, serving)
    world.ports.report = report(config_hash=HASH)
    await world.relist()
    await world.reconcile()
    before = world.condition("Available")
    world.cluster.writes.clear()

    answer, told = asyncio.Event(), asyncio.Event()

    class Slow(Ports):
        async def warmup(self, pod: Pod) -> bytes:
            await answer.wait()
            return await world.ports.warmup(pod)

    monkeypatch.setattr(warmups, "PATIENCE", 0.0)
    restarted = World()
    restarted.cluster, restarted.warmups = world.cluster, Warmups(Slow(), lambda key: told.set())
    restarted.reconciler = Reconciler(
        world.cluster, restarted.warmups, restarted.store, restarted.meters, restarted.clock, IMAGES, restarted.optional
    )
    await restarted.relist()
    await restarted.reconcile()
    assert world.cluster.writes == []
    answer.set()
    await told.wait()
    await restarted.reconcile()
    assert world.condition("Available") == before == ("True", "Serving")
    assert world.cluster.writes == []


async def test_one_missed_answer_after_a_restart_leaves_the_service_ready(world: World) -> None:
    world.cluster.put(Resource.Pod, pod(config_hash=HASH, ready=True))
    world.ports.report = report(config_hash=HASH)
    await world.relist()
    await world.reconcile()
    before = world.condition("Available")
    world.cluster.writes.clear()
    restarted = world.successor()
    world.ports.report, proved = None, world.ports.report
    await restarted.relist()
    assert await restarted.reconcile() is not None, "it is asked again"
    assert world.cluster.writes == []
    world.ports.report = proved
    await restarted.reconcile()
    assert world.cluster.writes == []
    assert world.condition("Available") == before == ("True", "Serving")


async def test_a_pod_that_stays_silent_after_a_restart_is_told_in_the_end(world: World) -> None:
    world.cluster.put(Resource.Pod, pod(config_hash=HASH, ready=True))
    world.ports.report = report(config_hash=HASH)
    await world.relist()
    await world.reconcile()
    restarted = world.successor()
    world.ports.report = None
    await restarted.relist()
    for _ in range(MISSES_BORNE):
        await restarted.reconcile()
    assert world.condition("GraphsCaptured") == ("True", "Captured"), "an engine may be about to end, or to listen"
    restarted.clock.now += BORNE_SECONDS
    await restarted.reconcile()
    assert world.condition("GraphsCaptured") == ("Unknown", "EngineUnreachable")


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


async def test_an_object_made_after_the_look_is_a_collision_and_stays_as_it_is(world: World) -> None:
    theirs = {"metadata": {"name": "demo", "namespace": NAMESPACE}, "spec": {"ports": [{"port": 1}]}}
    look, made = world.cluster.get, []

    async def get(resource: Resource, namespace: str, name: str) -> Any:
        found = await look(resource, namespace, name)
        if resource is Resource.Service and not made:
            made.append(world.cluster.put(Resource.Service, theirs))
        return found

    world.cluster.get = get  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        await world.reconcile()
    assert world.cluster.objects[Resource.Service, NAMESPACE, "demo"] == made[0]
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "NameCollision")
    assert world.cluster.objects[Resource.Service, NAMESPACE, "demo"] == made[0]
    del world.cluster.objects[Resource.Service, NAMESPACE, "demo"]
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")
