"""Nothing is kept in memory of a service that is gone, however it failed before."""

from collections.abc import Iterator
from typing import Any

from graphpod_operator.apply import drift_backoff
from graphpod_operator.cache.key import Key
from graphpod_operator.events import recorder as events
from graphpod_operator.kube.cluster import ApiError, Unavailable
from graphpod_operator.kube.resources import Resource
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import World

BOUNDED = {"Store._deleted"}
"""What has a bound of its own."""
FIXED = ("Meters.", "AllowLists.", "Installation.", "Informer._since", "OptionalKinds.")
"""What does not grow with services."""
AGED = ("DriftBackoff.", "Recent.")
"""What is dropped some time after it was of use."""
LONG = max(drift_backoff.QUIET_SECONDS, events.QUIET_SECONDS, events.BURST * events.REFILL_SECONDS) + 1  # s


def containers(thing: Any, name: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Every dict, set and list that hangs on an object of the operator's, and its size."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, dict | set | list | tuple) or type(thing).__name__ == "deque":
        if name not in BOUNDED:
            yield name, len(thing)
        return
    if type(thing).__module__.startswith("graphpod_operator") and not isinstance(thing, type):
        slots = getattr(type(thing), "__slots__", ())
        names = {*getattr(thing, "__dict__", {}), *slots}
        for inner in sorted(names):
            yield from containers(getattr(thing, inner, None), f"{type(thing).__name__}.{inner}", seen)


def kept(world: World) -> dict[str, int]:
    seen: set[int] = set()
    parts = (world.reconciler, world.queue, world.warmups, world.store, world.informer)
    return dict(found for part in parts for found in containers(part, type(part).__name__, seen))


def service(name: str) -> dict[str, Any]:
    manifest = inference_service(name)
    manifest["metadata"]["uid"] = f"uid-{name}"
    return manifest


async def lives_and_goes(world: World, name: str) -> None:
    """A service of which everything goes wrong: somebody edits children again and again, a memory cannot be read, the
    server stores another form, and the last child cannot be written.
    """
    key = Key(NAMESPACE, name)
    world.cluster.put(Resource.InferenceService, service(name))

    def fail(method: str, resource: Resource) -> None:
        if method == "apply" and resource is Resource.Deployment:
            raise Unavailable(0, "no answer")

    def normalise(stored: dict[str, Any]) -> None:
        if stored["kind"] == "Service":
            stored["spec"]["sessionAffinity"] = "None"
            stored["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:sessionAffinity"] = {}

    world.cluster.normalise = normalise
    last = drift_backoff.FREE + 2
    for attempt in range(last + 1):
        world.clock.between += 0.01
        world.cluster.refuse = fail if attempt == last else lambda method, resource: None
        for place, stored in list(world.cluster.objects.items()):
            if place[0] is Resource.Deployment and place[2] == name and attempt == last:
                stored["spec"]["strategy"] = {"type": "Edited"}
                world.cluster.put(Resource.Deployment, stored)
            if place[0] is Resource.ServiceAccount and place[2] == name:
                stored["automountServiceAccountToken"] = attempt
                world.cluster.put(Resource.ServiceAccount, stored)
            if place[0] is Resource.ControllerRevision and place[2].startswith(name):
                world.cluster.put(Resource.ControllerRevision, {**stored, "data": {}})
        await world.relist()
        world.reconciler.reread([key])
        world.queue.add(key)
        assert await world.queue.take() == key
        try:
            await world.reconciler.reconcile(key)
        except ApiError:
            world.queue.add_failed(key)
        world.queue.done(key)
    world.cluster.refuse = lambda method, resource: None
    for place in [place for place in world.cluster.objects if place[2] == name or place[2].startswith(f"{name}-")]:
        del world.cluster.objects[place]
    await world.relist()
    while world.queue.depth:
        taken = await world.queue.take()
        await world.reconciler.reconcile(taken)
        world.queue.forget(taken)
        world.queue.done(taken)


async def test_nothing_is_kept_of_services_that_are_gone() -> None:
    world = World()
    await lives_and_goes(world, "first")
    for number in range(5):
        await lives_and_goes(world, f"s{number}")
    # what is remembered for a time is dropped at the next look after it
    world.clock.between += LONG
    await lives_and_goes(world, "last")
    before = kept(world)
    world.clock.between += LONG
    for name in ("a", "b", "c"):
        await lives_and_goes(world, name)
    world.clock.between += LONG
    await lives_and_goes(world, "last")
    assert kept(world) == before
    assert {name: size for name, size in before.items() if size and not name.startswith((*FIXED, *AGED))} == {}
    assert "ServiceMemories._of" in before
