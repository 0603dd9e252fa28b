"""Optional kinds: what is not served is left out and told of; what comes later is made without a restart."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from graphpod_operator.install.network_access import Access
from graphpod_operator.kube.cluster import ApiError, Expired, ServerRefused, TimedOut, Unavailable, Unreached
from graphpod_operator.kube.resources import OPTIONAL, WATCHED, Resource
from graphpod_operator.watch import optional_kinds
from tests.unit.operator.cluster import FakeCluster
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import World

ACCESS = Access(admin=({"podSelector": {}},), routes=("edge",))
MONITOR = Resource.PodMonitor, NAMESPACE, "demo"


@pytest.fixture
async def monitored() -> World:
    """A service that asks for a PodMonitor."""
    made = World()
    made.cluster.put(Resource.InferenceService, inference_service(monitoring={"enabled": True}))
    await made.relist()
    return made


async def test_what_is_not_served_is_left_out_and_the_service_is_made_all_the_same(monitored: World) -> None:
    assert not await monitored.optional.look()
    await monitored.reconcile()
    assert MONITOR not in monitored.cluster.objects
    assert monitored.condition("Accepted") == ("True", "Accepted")
    assert monitored.condition("MonitorReady") == ("False", "KindNotServed")
    assert monitored.optional.watched == WATCHED


async def test_a_kind_that_comes_is_watched_and_made_without_a_restart(monitored: World) -> None:
    await monitored.optional.look()
    await monitored.reconcile()
    monitored.discovery.served.add(Resource.PodMonitor)
    assert await monitored.optional.look()
    await asyncio.wait_for(monitored.optional.present(Resource.PodMonitor), 60)
    assert monitored.optional.watched == (*WATCHED, Resource.PodMonitor)
    await monitored.reconcile()
    assert monitored.condition("MonitorReady") == ("Unknown", "ScrapePending")
    monitored.cluster.writes.clear()
    assert not await monitored.optional.look()
    await monitored.reconcile()
    assert monitored.cluster.writes == []


async def test_what_is_there_already_when_a_kind_comes_is_known_before_anything_is_decided(monitored: World) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    await monitored.reconcile()
    restarted = World()
    restarted.cluster, restarted.discovery = monitored.cluster, monitored.discovery
    restarted.optional = optional_kinds.OptionalKinds(restarted.discovery, restarted.cluster, restarted.informer)
    await restarted.relist()
    await restarted.optional.look()
    assert restarted.store.child(*MONITOR) is not None


async def test_a_kind_that_goes_takes_nothing_else_with_it(monitored: World) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    await monitored.reconcile()
    monitored.discovery.served.clear()
    del monitored.cluster.objects[MONITOR]
    assert await monitored.optional.look()
    assert monitored.store.child(*MONITOR) is None
    await monitored.reconcile()
    assert monitored.condition("MonitorReady") == ("False", "KindNotServed")
    assert monitored.condition("Accepted") == ("True", "Accepted")


async def test_a_kind_that_went_a_moment_ago_is_found_out_by_the_write_that_fails(monitored: World) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()

    def gone(method: str, resource: Resource) -> None:
        if resource is Resource.PodMonitor:
            monitored.discovery.served.clear()
            raise ServerRefused(404, "the server could not find the requested resource")

    monitored.cluster.refuse = gone
    with pytest.raises(optional_kinds.Gone):
        await monitored.reconcile()
    await monitored.reconcile()
    assert monitored.condition("MonitorReady") == ("False", "KindNotServed")
    assert monitored.condition("Accepted") == ("True", "Accepted")


async def test_a_kind_the_operator_may_not_list_is_told_of_as_that(
    monitored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = monitored.cluster.list

    async def refused(resource: Resource, *more: Any) -> object:
        if resource is Resource.PodMonitor:
            raise ServerRefused(403, "podmonitors is forbidden")
        return await listing(resource, *more)

    monkeypatch.setattr(monitored.cluster, "list", refused)
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    await monitored.reconcile()
    assert monitored.condition("MonitorReady") == ("False", "KindNotGranted")
    assert Resource.PodMonitor not in monitored.optional.watched


FAILING = (
    "conversion webhook for monitoring.coreos.com/v1, Kind=PodMonitor failed: "
    'Post "https://webhook.monitoring.svc:443/convert?timeout=30s": no endpoints'
)


def unlisted(world: World, error: ApiError | None, kind: Resource = Resource.PodMonitor) -> None:
    """The lists of a kind fail from now on, or (None) succeed."""

    async def listing(resource: Resource, *more: Any) -> object:
        if resource is kind and error is not None:
            raise error
        return await FakeCluster.list(world.cluster, resource, *more)

    world.cluster.list = listing  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("error", [Unreached(0, "no answer"), Expired(410, "too old")], ids=str)
async def test_an_api_server_that_does_not_answer_a_list_says_nothing_about_a_kind(
    monitored: World, error: ApiError
) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    unlisted(monitored, error)
    with pytest.raises(type(error)):
        await monitored.optional.look()
    assert monitored.optional.absent[Resource.PodMonitor].reason.name == "KindNotServed"
    assert not monitored.optional.unlisted


@pytest.mark.parametrize(
    "error",
    [ServerRefused(400, "not so"), Unavailable(500, FAILING), Unavailable(503, "no endpoints"), TimedOut(0, "late")],
    ids=str,
)
async def test_of_a_kind_whose_lists_begin_to_fail_what_is_known_stays(monitored: World, error: ApiError) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    await monitored.reconcile()
    unlisted(monitored, error)
    assert not await monitored.optional.look(doubted=True)
    assert monitored.optional.unlisted == {Resource.PodMonitor}
    assert Resource.PodMonitor in monitored.optional.watched
    assert monitored.store.child(*MONITOR) is not None
    unlisted(monitored, None)
    assert not await monitored.optional.look()
    assert not monitored.optional.unlisted, "it is listed again without a further doubt"


async def test_a_kind_that_cannot_be_listed_from_the_start_is_left_out_and_comes_once_it_can(monitored: World) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    unlisted(monitored, Unavailable(500, FAILING))
    monitored.meters.watch(monitored.store, monitored.queue, lambda: True, lambda: monitored.optional.unlisted)
    await monitored.optional.look(doubted=True)
    await monitored.reconcile()
    assert monitored.condition("Accepted") == ("True", "Accepted")
    assert monitored.condition("MonitorReady") == ("False", "KindNotListed")
    assert monitored.message("MonitorReady").startswith(f"PodMonitor cannot be listed: {FAILING[:60]}")
    series = 'graphpod_operator_kind_unlisted{kind="PodMonitor"}'
    assert f"{series} 1.0" in monitored.meters.text().decode()
    unlisted(monitored, None)
    assert await monitored.optional.look()
    await monitored.reconcile()
    assert monitored.condition("MonitorReady") == ("Unknown", "ScrapePending")
    assert f"{series} 0.0" in monitored.meters.text().decode()


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (Resource.ScaledObject, {"autoscaling": {"max": 3, "target": "4", "provider": "KEDA"}}),
        (Resource.LeaderWorkerSet, {"parallelism": {"pipeline": 2, "nodes": 2}}),
    ],
    ids=["ScaledObject", "LeaderWorkerSet"],
)
async def test_a_service_that_needs_a_kind_that_cannot_be_listed_waits_for_it(
    kind: Resource, spec: dict[str, Any]
) -> None:
    world = World()
    world.cluster.put(Resource.InferenceService, inference_service(**spec))
    await world.relist()
    world.discovery.served.add(kind)
    unlisted(world, Unavailable(503, "no endpoints"), kind)
    await world.optional.look()
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "KindNotListed")
    assert f"{kind.kind} cannot be listed: no endpoints; " in world.message("Accepted")
    assert "Stalled" not in {row["type"] for row in world.service["status"]["conditions"]}, "it waits, and that helps"
    unlisted(world, None, kind)
    await world.optional.look()
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")


async def test_a_network_policy_stays_open_while_routes_cannot_be_listed() -> None:
    """Otherwise a restart of the operator would cut off the Gateway of a service that serves."""
    world = World()
    world.reconciler = world.make_reconciler(access=ACCESS)
    route = {"route": {"parentRefs": [{"name": "edge", "namespace": "edge"}]}}
    world.cluster.put(Resource.InferenceService, inference_service(networking=route))
    await world.relist()
    world.discovery.served.add(Resource.HTTPRoute)
    await world.optional.look()
    await world.reconcile()
    policy = world.cluster.objects[Resource.NetworkPolicy, NAMESPACE, "demo"]["spec"]
    assert "edge" in str(policy)
    after = world.successor()
    after.discovery = world.discovery
    after.optional = optional_kinds.OptionalKinds(after.discovery, after.cluster, after.informer)
    after.reconciler = after.make_reconciler(access=ACCESS)
    await after.relist()
    unlisted(after, Unavailable(500, FAILING), Resource.HTTPRoute)
    await after.optional.look()
    await after.reconcile()
    assert after.condition("RouteReady") == ("False", "KindNotListed")
    assert after.cluster.objects[Resource.NetworkPolicy, NAMESPACE, "demo"]["spec"] == policy
    assert (Resource.HTTPRoute, NAMESPACE, "demo") in after.cluster.objects


async def test_without_the_right_to_discover_lists_say_what_is_served(
    monitored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> frozenset[Resource]:
        raise ServerRefused(403, "forbidden: User cannot get path /apis")

    monkeypatch.setattr(monitored.discovery, "serves", refused)
    unlisted(monitored, ServerRefused(404, "the server could not find the requested resource"), Resource.HTTPRoute)
    await monitored.optional.look()
    assert Resource.PodMonitor in monitored.optional.watched
    assert monitored.optional.absent[Resource.HTTPRoute].reason.name == "KindNotServed"


async def test_a_kind_whose_list_fails_is_looked_at_again_within_seconds(
    monitored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional_kinds, "RETRY_SECONDS", 0.01)
    monitored.discovery.served.add(Resource.PodMonitor)
    unlisted(monitored, Unavailable(500, FAILING))
    await monitored.optional.look()
    looking = asyncio.create_task(monitored.optional.run())
    unlisted(monitored, None)
    await asyncio.wait_for(monitored.optional.present(Resource.PodMonitor), 60)
    looking.cancel()


async def test_a_kind_that_goes_between_discovery_and_list_is_not_served(
    monitored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)

    async def refused(*_: object) -> object:
        raise ServerRefused(404, "the server could not find the requested resource")

    monkeypatch.setattr(monitored.cluster, "list", refused)
    await monitored.optional.look()
    assert monitored.optional.absent[Resource.PodMonitor].reason.name == "KindNotServed"


async def test_rights_in_one_namespace_of_two_are_none_and_nothing_of_it_is_known(
    monitored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    await monitored.reconcile()
    listing = monitored.cluster.list

    async def partly(resource: Resource, namespace: str | None, *more: Any) -> object:
        if namespace == "elsewhere":
            raise ServerRefused(403, "podmonitors is forbidden")
        for _ in range(10):
            await asyncio.sleep(0)
        return await listing(resource, namespace, *more)

    monkeypatch.setattr(monitored.cluster, "list", partly)
    both = optional_kinds.OptionalKinds(
        monitored.discovery, monitored.cluster, monitored.informer, ("elsewhere", NAMESPACE)
    )
    await both.look()
    for _ in range(20):
        await asyncio.sleep(0)  # a list that went on would end here
    assert Resource.PodMonitor in both.absent
    assert monitored.store.child(*MONITOR) is None


async def test_what_the_spec_still_wants_is_not_deleted_while_its_kind_is_withheld(
    monitored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    await monitored.reconcile()
    monitored.discovery.served.clear()
    await monitored.optional.look()
    monitored.informer.changed(Resource.PodMonitor, monitored.cluster.objects[MONITOR])  # a watch that told late
    await monitored.reconcile()
    assert MONITOR in monitored.cluster.objects


async def test_a_kind_that_another_worker_missed_first_is_gone_for_the_second_too(
    monitored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    apply = monitored.cluster.apply

    async def gone(resource: Resource, *more: Any, **how: Any) -> object:
        if resource is Resource.PodMonitor:
            monitored.discovery.served.clear()
            await monitored.optional.look()
            raise ServerRefused(404, "the server could not find the requested resource")
        return await apply(resource, *more, **how)

    monkeypatch.setattr(monitored.cluster, "apply", gone)
    with pytest.raises(optional_kinds.Gone):
        await monitored.reconcile()


async def test_looks_take_turns(monitored: World, monkeypatch: pytest.MonkeyPatch) -> None:
    serves, asking, most = monitored.discovery.serves, 0, 0

    async def slow(sought: Collection[Resource]) -> frozenset[Resource]:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        await asyncio.sleep(0)
        asking -= 1
        return await serves(sought)

    monkeypatch.setattr(monitored.discovery, "serves", slow)
    await asyncio.gather(*(monitored.optional.look() for _ in range(3)))
    assert most == 1


async def test_rights_that_went_are_found_out_when_something_failed(
    monitored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()

    async def refused(*_: object) -> object:
        raise ServerRefused(403, "podmonitors is forbidden")

    monkeypatch.setattr(monitored.cluster, "list", refused)
    assert not await monitored.optional.look()
    assert await monitored.optional.look(doubted=True)
    assert Resource.PodMonitor not in monitored.optional.watched


async def test_a_kind_that_comes_back_with_what_there_was_is_known_as_before(monitored: World) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    await monitored.reconcile()
    monitored.discovery.served.clear()
    await monitored.optional.look()
    assert monitored.store.child(*MONITOR) is None
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    assert monitored.store.child(*MONITOR) is not None


async def test_a_kind_that_the_operator_was_told_to_leave_alone_is_not_asked_for(monitored: World) -> None:
    alone = optional_kinds.OptionalKinds(
        monitored.discovery, monitored.cluster, monitored.informer, without=[Resource.PodMonitor]
    )
    monitored.discovery.served.update(OPTIONAL)
    await alone.look()
    assert Resource.PodMonitor not in alone.watched
    assert alone.absent[Resource.PodMonitor].reason.name == "KindNotGranted"


async def test_an_api_server_that_does_not_say_changes_nothing(
    monitored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()

    async def silent(*_: object) -> frozenset[Resource]:
        raise Unavailable(0, "no answer")

    monkeypatch.setattr(monitored.discovery, "serves", silent)
    with pytest.raises(Unavailable):
        await monitored.optional.look()
    assert Resource.PodMonitor in monitored.optional.watched


async def test_a_look_is_due_at_once_when_something_failed(monitored: World) -> None:
    told = asyncio.Event()
    looked = optional_kinds.OptionalKinds(monitored.discovery, monitored.cluster, monitored.informer, done=told.set)
    looking = asyncio.create_task(looked.run())
    monitored.discovery.served.add(Resource.PodMonitor)
    looked.soon()
    async with asyncio.timeout(60):
        await told.wait()
    looking.cancel()


async def test_a_monitor_that_is_not_wanted_any_more_is_deleted(monitored: World) -> None:
    monitored.discovery.served.add(Resource.PodMonitor)
    await monitored.optional.look()
    await monitored.reconcile()
    await monitored.edit()
    await monitored.reconcile()
    assert MONITOR not in monitored.cluster.objects
    with pytest.raises(StopIteration):
        monitored.condition("MonitorReady")
