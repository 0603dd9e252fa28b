"""The resync: what the watches missed is taken in, and watches that tell nothing are found out."""

import asyncio
import itertools

import pytest

from graphpod_operator.cache.store import Store
from graphpod_operator.kube.resources import Resource
from graphpod_operator.manager.health import sickness
from graphpod_operator.watch import relist
from graphpod_operator.watch.informer import Informer, fill
from graphpod_operator.watch.optional_kinds import OptionalKinds
from graphpod_operator.watch.relist import Relist, Trust
from graphpod_operator.watch.workqueue import KeyQueue
from tests.unit.operator.cluster import FakeCluster, FakeDiscovery
from tests.unit.operator.objects import inference_service


class World:
    """A cluster, and a store filled from it, without watches."""

    def __init__(self) -> None:
        self.cluster, self.store = FakeCluster(), Store()
        self.informer = Informer(self.store, KeyQueue())
        self.kinds = OptionalKinds(FakeDiscovery(), self.cluster, self.informer)
        self.resync = Relist(self.cluster, self.informer, (), self.kinds, lambda: None)

    def change(self) -> None:
        self.cluster.put(Resource.InferenceService, inference_service())

    def known(self) -> int:
        return sum(1 for _ in self.store.services())


@pytest.fixture
async def world() -> World:
    made = World()
    await fill(made.cluster, made.informer, (), made.kinds.watched)
    return made


@pytest.fixture(autouse=True)
def no_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watches get no time, unless a test gives them some."""
    monkeypatch.setattr(relist, "DELIVERY_SECONDS", 0.0)


async def test_of_what_has_not_changed_a_list_takes_what_is_known_and_gives_nobody_work(world: World) -> None:
    world.change()
    kind = Resource.InferenceService
    world.informer.listed(await world.informer.ask(world.cluster, kind, None))
    (known,) = world.store.services()
    again = await world.informer.ask(world.cluster, kind, None)
    assert again.items == (known,)
    assert again.items[0] is known, "it is not projected, and held, a second time"


async def test_a_list_that_says_what_is_known_contradicts_nothing(world: World) -> None:
    assert await world.resync.look(world.kinds.watched) is None


async def test_what_the_watches_did_not_tell_contradicts_them_and_is_taken_in(world: World) -> None:
    world.change()
    assert await world.resync.look(world.kinds.watched) == "InferenceService ns/demo has changed, and 0 more things"
    assert world.known() == 1
    world.cluster.objects.clear()
    assert await world.resync.look(world.kinds.watched) == "InferenceService ns/demo was deleted, and 0 more things"
    assert world.known() == 0


async def test_what_the_watches_tell_a_little_later_contradicts_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.change()
    monkeypatch.setattr(relist, "DELIVERY_SECONDS", 0.01)
    looking = asyncio.create_task(world.resync.look(world.kinds.watched))
    await asyncio.sleep(0)  # the lists are done, the time to deliver runs
    for raw in (await world.cluster.list(Resource.InferenceService, None, "", dict)).items:
        world.informer.changed(Resource.InferenceService, raw)
    assert await looking is None


async def test_a_history_that_went_back_contradicts_all_that_is_known(world: World) -> None:
    """etcd was restored from a backup: by their versions, older objects would pass for known."""
    world.change()
    await world.resync.look(world.kinds.watched)
    world.cluster.objects.clear()
    world.cluster._versions = itertools.count(1)
    told = await world.resync.look(world.kinds.watched)
    assert told is not None
    assert told.startswith("the API server's history went back from ")


async def test_a_history_that_went_back_and_is_as_long_again_contradicts_what_is_known(world: World) -> None:
    world.change()
    await world.resync.look(world.kinds.watched)
    (known,) = world.store.services()
    raw = world.cluster.objects[Resource.InferenceService, "ns", "demo"]
    raw["metadata"]["resourceVersion"] = str(known.version - 1)
    world.cluster._versions = itertools.count(known.version + 100)
    told = await world.resync.look(world.kinds.watched)
    assert told == (
        "the API server's history went back: "
        f"InferenceService ns/demo is at version {known.version - 1} after {known.version}"
    )
    assert list(world.store.services()) == [known], "nothing is taken in beside what is known"


async def test_what_is_there_again_after_it_was_deleted_contradicts_what_is_known(world: World) -> None:
    world.change()
    await world.resync.look(world.kinds.watched)
    place = Resource.InferenceService, "ns", "demo"
    old = world.cluster.objects.pop(place)
    version = next(world.cluster._versions)
    world.informer.deleted(place[0], {**old, "metadata": {**old["metadata"], "resourceVersion": str(version)}})
    assert await world.resync.look(world.kinds.watched) is None
    world.cluster.objects[place] = old
    told = await world.resync.look(world.kinds.watched)
    assert told is not None
    assert told.endswith(f"is at version {old['metadata']['resourceVersion']} after {version}")


async def test_a_list_older_than_what_was_told_since_contradicts_nothing(world: World) -> None:
    world.change()
    kind = Resource.InferenceService
    late = await world.informer.ask(world.cluster, kind, None)
    world.informer.listed(late)
    world.change()
    world.informer.listed(await world.informer.ask(world.cluster, kind, None))
    assert world.informer.news(late) == []
    assert world.informer.put_back(late) is None


async def test_services_that_are_listed_anew_again_and_again_do_not_put_off_the_look_at_everything(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relist, "EVERY_SECONDS", 0.2)
    monkeypatch.setattr(relist, "SETTLE_SECONDS", 0.01)
    due = asyncio.Event()
    world.resync = Relist(world.cluster, world.informer, (), world.kinds, due.set)
    running = asyncio.create_task(world.resync.run())
    async with asyncio.timeout(60):
        while not due.is_set():
            world.resync.soon()
            await asyncio.sleep(0.05)
    running.cancel()


def test_one_contradiction_is_a_doubt_and_two_in_a_row_are_a_reason_to_restart() -> None:
    trust, queue = Trust(), KeyQueue()
    trust.judge("a pod has changed")
    assert sickness(queue, trust) is None
    trust.judge(None)
    trust.judge("a pod has changed")
    assert sickness(queue, trust) is None
    trust.judge("another has changed")
    assert sickness(queue, trust) == "the watch cache is stale: another has changed"
