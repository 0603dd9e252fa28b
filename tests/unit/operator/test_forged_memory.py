"""What the operator remembers in objects that somebody may edit: whatever stands there, the service is looked after."""

import asyncio
import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_operator.api.names import CAPTURE_FAILURES_ANNOTATION, HASH_ANNOTATION, REVISION_ANNOTATION
from graphpod_operator.kube.resources import Resource
from graphpod_policy import config_hash
from tests.scribbles import ANYTHING, paths, put
from tests.unit.operator.objects import NAMESPACE, inference_service, pod, report
from tests.unit.operator.world import World

DEPLOYMENT = Resource.Deployment, NAMESPACE, "demo"
Data = dict[str, str]


async def applied(**spec: Any) -> World:
    """A service of this spec, looked at once, in a cluster that has every kind."""
    world = World()
    world.discovery.served.add(Resource.LeaderWorkerSet)
    world.cluster.put(Resource.InferenceService, inference_service(**spec))
    await world.optional.look()
    await world.relist()
    await world.reconcile()
    return world


async def serving() -> World:
    """A service with a pod that has proved its graphs."""
    world = await applied()
    annotations = world.deployment["spec"]["template"]["metadata"]["annotations"]
    world.cluster.put(Resource.Pod, pod(config_hash=annotations[HASH_ANNOTATION], ready=True))
    world.ports.report = report(config_hash=annotations[HASH_ANNOTATION])
    return world


async def scribbled(write: Callable[[str], str]) -> World:
    """A service whose memory of starts that died is another; `write` gets the revision that it speaks of."""
    world = await serving()
    found = copy.deepcopy(world.deployment)
    annotations = found["metadata"]["annotations"]
    annotations[CAPTURE_FAILURES_ANNOTATION] = write(annotations[REVISION_ANNOTATION])
    world.cluster.put(Resource.Deployment, found)
    await world.settle()
    return world


STEP = {"rule": "CaptureFailed", "because": "b", "phases": ["prefill"]}
DEATHS = {"of": "r", "adopt": "", "starts": ["u/0"], "over": ["v/0"], "steps": [STEP], "runs": ""}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"of":' * 40_000,
        "NaN",
        json.dumps({**DEATHS, "steps": [STEP] * 3000}),
        json.dumps({**DEATHS, "starts": ["u/0"] * 30_000}),
        json.dumps({**DEATHS, "steps": [{**STEP, "because": 1}]}),
        json.dumps({**DEATHS, "steps": [{**STEP, "rule": "None"}]}),
    ],
    ids=["deep", "deep maps", "no JSON", "many steps", "many deaths", "no words", "no rule"],
)
def test_a_memory_of_deaths_that_no_operator_wrote_counts_for_nothing(text: str) -> None:
    world = asyncio.run(scribbled(lambda revision: text.replace('"of": "r"', f'"of": "{revision}"')))
    assert world.condition("Degraded") == ("False", "AsPlanned")


@given(st.sampled_from(sorted(paths(DEATHS), key=str)), ANYTHING)
def test_any_field_of_the_memory_of_deaths_may_hold_anything(at: Any, value: Any) -> None:
    world = asyncio.run(scribbled(lambda revision: json.dumps(put({**DEATHS, "of": revision}, at, value))))
    assert world.condition("Accepted") == ("True", "Accepted")


async def forged(write: Callable[[Data], Data], world: World | None = None) -> World:
    """A service whose ControllerRevision somebody deleted, and made again with other content."""
    world = world or await serving()
    (found,) = [one for (kind, *_), one in world.cluster.objects.items() if kind is Resource.ControllerRevision]
    world.cluster.put(Resource.ControllerRevision, {**found, "data": write(copy.deepcopy(found["data"]))})
    await world.settle()
    return world


def kept() -> Data:
    """What a rendering is kept as."""
    found: Data = {}
    asyncio.run(forged(lambda data: found.update(data) or data))  # type: ignore[func-returns-value]
    return found


KEPT = kept()
FILES = {name: json.loads(KEPT[name]) for name in ("engine.json", "workload.json", "plan.json")}
PLACES = [(name, at) for name, content in FILES.items() for at in sorted(paths(content), key=str)]


def with_its_hash(data: Data) -> Data:
    """The same with pods that name the configuration it holds: a forger can do that."""
    workload = json.loads(data["workload.json"])
    try:
        named = config_hash(data["engine.json"].encode())
        workload["template"]["metadata"]["annotations"][HASH_ANNOTATION] = named
    except (TypeError, KeyError, UnicodeEncodeError):
        return data
    return data | {"workload.json": json.dumps(workload)}


@given(st.sampled_from(PLACES), ANYTHING)
def test_any_field_of_a_kept_rendering_may_hold_anything(place: tuple[str, Any], value: Any) -> None:
    name, at = place
    changed = json.dumps(put(FILES[name], at, value))
    world = asyncio.run(forged(lambda data: with_its_hash({**data, name: changed})))
    assert world.condition("Accepted")[0] == "True"
    asyncio.run(refused(world))
    assert world.condition("Accepted") == ("False", "FeatureNotBuilt")


async def refused(world: World) -> None:
    """A spec that cannot run: status goes by what is kept of the one before."""
    await world.edit(engine={"deterministic": True})
    await world.reconcile()


GROUP: dict[str, Any] = {
    "parallelism": {"pipeline": 2, "nodes": 2},
    "engine": {"imagePullSecrets": [{"name": "registry"}]},
    "podTemplate": {
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}, {"name": "w", "configMap": {"name": "c"}}]
    },
}
"""A service whose rendering has every part that is read again."""


async def forged_group(write: Callable[[Data], Data]) -> World:
    """The same of a group of pods, whose starts died in a capture."""
    world = await applied(**GROUP)
    place = Resource.LeaderWorkerSet, NAMESPACE, "demo-group"
    found = copy.deepcopy(world.cluster.objects[place])
    annotations = found["metadata"]["annotations"]
    annotations[CAPTURE_FAILURES_ANNOTATION] = json.dumps({**DEATHS, "of": annotations[REVISION_ANNOTATION]})
    world.cluster.put(Resource.LeaderWorkerSet, found)
    return await forged(write, world)


def kept_of_group() -> Any:
    """The part of it that its pods are made from."""
    found: Data = {}
    asyncio.run(forged_group(lambda data: found.update(data) or data))  # type: ignore[func-returns-value]
    return json.loads(found["workload.json"])


OF_GROUP = kept_of_group()
PLACES_OF_A_SAMPLE = 16


@pytest.mark.parametrize("count", [PLACES_OF_A_SAMPLE, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("value", [None, "x", [[]], {"": []}], ids=["null", "text", "list", "map"])
@pytest.mark.parametrize("worker", [False, True], ids=["leader", "worker"])
def test_every_field_of_a_group_s_kept_pods_may_be_of_another_kind(worker: bool, value: Any, count: int | None) -> None:
    """All of them with `make samples`; `make test` draws others for each kind of value."""
    places = sorted((at for at in paths(OF_GROUP) if (at[:1] == ("worker",)) is worker), key=str)
    assert len(places) > PLACES_OF_A_SAMPLE
    for at in random.Random(repr(value)).sample(places, count or len(places)):
        changed = json.dumps(put(OF_GROUP, at, value))
        world = asyncio.run(forged_group(lambda data, to=changed: with_its_hash({**data, "workload.json": to})))
        assert world.condition("Accepted")[0] == "True", at


@pytest.mark.parametrize("name", [[1], {"a": 1}, 5, None])
def test_a_volume_whose_object_has_no_name_is_for_the_api_server_to_refuse(name: Any) -> None:
    volume = {"name": "v", "secret": {"secretName": name}}
    world = asyncio.run(applied(podTemplate={"volumes": [volume]}))
    assert world.condition("Accepted")[0] == "True"


@pytest.mark.parametrize("name", KEPT)
def test_a_file_of_a_kept_rendering_may_be_deep(name: str) -> None:
    world = asyncio.run(forged(lambda data: {**data, name: "[" * 100_000}))
    assert world.condition("Accepted") == ("True", "Accepted")


@pytest.mark.parametrize(("phase", "planned"), [("prefill", "Auto"), ("decode", "Piecewise")])
def test_a_kept_plan_that_its_phase_cannot_run_is_today_s(phase: str, planned: str) -> None:
    changed = json.dumps(put(FILES["engine.json"], ("graph", phase, "planned"), planned))
    world = asyncio.run(forged(lambda data: with_its_hash({**data, "engine.json": changed})))
    told = world.service["status"]["graph"][phase]["planned"]
    assert told == FILES["engine.json"]["graph"][phase]["planned"]
