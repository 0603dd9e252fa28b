"""What is too large or too deep is outlined and told of alone: in lists, in watches, in kopf's watch, in the plan."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from kopf._cogs.clients.api import iter_jsonlines
from kubernetes.aio import client

from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.projections import project
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.handlers.bounded_session import bounded
from graphpod_operator.handlers.settings import configure, shorten
from graphpod_operator.kube import bounds
from graphpod_operator.kube.client import KubernetesCluster, KubernetesDiscovery, KubernetesWatches
from graphpod_operator.kube.cluster import Expired, ServerRefused, TimedOut, Unavailable
from graphpod_operator.kube.connection import Connection
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_state import Refused
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.planner import desire
from graphpod_operator.schema.openapi import structural
from tests.unit.operator.objects import INSTALLED, NAMESPACE, inference_service, outcome
from tests.unit.operator.world import World

DEEP = 1200
"""More than a reader takes where Python's recursion limit is the usual one, as it is in the operator."""
STORED = {"labels": {"app.kubernetes.io/managed-by": "graphpod", "graphpod.dev/inferenceservice": "demo"}}


@pytest.fixture(autouse=True)
def usual_recursion_limit() -> Iterator[None]:
    """torch's compiler raises the limit of its process, which may have run other tests."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


def nest(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def metadata(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "7", **more}


def plain(name: str, **more: Any) -> bytes:
    return json.dumps({"metadata": metadata(name), **more}).encode()


def deep(name: str, levels: int = DEEP) -> bytes:
    """An object as the API server stores one: its fields, as deep, are in managedFields too."""
    told = json.dumps(metadata(name, **STORED, managedFields=[{"manager": "kubectl"}])).encode()
    fields = told.replace(b'"manager": "kubectl"', b'"fieldsV1":' + nest(levels))
    return b'{"apiVersion":"v1","metadata":' + fields + b',"spec":{"it":' + nest(levels) + b'},"status":{"x":"}"}}'


def large(name: str, size: int = bounds.OBJECT_BYTES) -> bytes:
    return plain(name, data={"x": "]" * size})


def test_of_a_deep_object_its_metadata_and_status_are_read() -> None:
    found = bounds.read(deep("d"))
    assert found["metadata"] == {**metadata("d"), **STORED}
    assert found["status"] == {"x": "}"}
    assert "nested more than" in found[bounds.BREACH]
    assert "spec" not in found


def test_of_a_large_object_its_metadata_is_read() -> None:
    assert bounds.read(large("big")) == {
        "metadata": metadata("big"),
        bounds.BREACH: "the object has 512 KiB, more than 512",
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4) | st.just('"}]{[\\'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=5), st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_the_parts_of_any_map_are_those_a_reader_finds(raw: dict[str, Any], separators: tuple[str, str]) -> None:
    text = json.dumps(raw, separators=separators).encode()
    found = {json.loads(key): json.loads(text[begin:end].strip(b" ,")) for key, begin, end in bounds.parts(text)}
    assert found == raw


@given(st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=3), max_size=4))
def test_the_items_of_any_list_are_those_a_reader_finds(items: list[dict[str, Any]]) -> None:
    text = json.dumps(items).encode()
    assert [json.loads(text[begin:end]) for _, begin, end in bounds.parts(text)] == items


@given(st.binary(max_size=40))
def test_no_text_ends_a_reader_otherwise_than_by_an_error_of_value(text: bytes) -> None:
    for reader in (bounds.read, bounds.event, bounds.for_others, bounds.Page.of, lambda one: bounds.outline(one, "")):
        try:
            reader(text)  # type: ignore[operator]
        except ValueError:
            continue


@pytest.mark.parametrize("line", [b"{}", b'{"type": "ADDED"}', b'{"object": {}}', b"[]", b""])
def test_a_line_that_is_no_event_is_an_error_of_value(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"a type and an object|Expected `object`|truncated"):
        bounds.event(line)


@pytest.mark.parametrize("levels", [33, 300, 600, 940])
def test_a_spec_that_is_nested_too_deep_is_refused_with_the_field(levels: int) -> None:
    volume = {"name": "x", "configMap": json.loads(nest(levels))}
    found = Service.of(inference_service(podTemplate={"volumes": [volume]}))
    refused = desire(PlanInput(found, INSTALLED))
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.SpecTooLarge
    assert refused.what == "spec.podTemplate.volumes[0].configMap: the spec is nested more than 32 levels deep"
    assert found.spec == {}


def test_a_spec_of_too_many_values_is_refused_with_the_field() -> None:
    refused = outcome(podTemplate={"volumes": [{"name": "x", "csi": dict.fromkeys(map(str, range(5000)))}]})
    assert isinstance(refused, Refused)
    assert refused.what == "spec.podTemplate.volumes[0].csi: the spec has more than 4096 values"


def test_a_spec_whose_objects_would_be_too_large_is_refused_with_its_largest_field() -> None:
    """A ControllerRevision holds text within text: each quotation mark takes four bytes in it, and two in the spec."""
    quoted = [{"name": f"V{number}", "value": '"' * 4000} for number in range(58)]
    refused = outcome(podTemplate={"env": quoted})
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.SpecTooLarge
    assert refused.what.startswith("spec.podTemplate.env: the ControllerRevision made from the spec has 9")
    assert refused.what.endswith(" KiB, more than 480")


def test_of_a_long_annotation_only_the_beginning_is_remembered() -> None:
    """The Deployment's annotation repeats it, and has no room for 200 KB of quotation marks."""
    manifest = inference_service()
    manifest["metadata"]["annotations"] = {"graphpod.dev/adopt": '"' * 200_000}
    assert Service.of(manifest).adopt == '"' * 253


MANY = dict.fromkeys(map(str, range(9)), 1)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"podTemplate": {"volumes": [{"name": "x", **MANY}]}}, "spec.podTemplate.volumes[0]"),
        ({"podTemplate": {"env": [{"name": "X", "valueFrom": MANY}]}}, "spec.podTemplate.env[0].valueFrom"),
        ({"placement": {"affinity": {"podAntiAffinity": MANY}}}, "spec.placement.affinity.podAntiAffinity"),
    ],
)
def test_what_is_passed_through_has_few_fields(spec: dict[str, Any], field: str) -> None:
    refused = outcome(**spec)
    assert isinstance(refused, Refused)
    assert refused.what.startswith(f"{field}: ")
    node: Any = {"properties": {"spec": structural(Spec)}}
    for name in field.replace("[0]", "").split("."):
        node = node["properties"][name]
        node = node.get("items", node)
    assert node["maxProperties"] == 8


def test_the_largest_spec_of_a_real_pod_is_read() -> None:
    terms = [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"] * 8}] * 4}] * 8
    pods = [{"weight": 1, "podAffinityTerm": {"topologyKey": "t", "labelSelector": terms[0]}}] * 8
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": pods},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": pods},
    }
    env = [{"name": f"E{number}", "value": "v" * 4096} for number in range(64)]
    raw = inference_service(placement={"affinity": affinity}, podTemplate={"env": env})
    assert Service.of(bounds.read(json.dumps(raw).encode())).breach is None


@pytest.mark.parametrize("data", [nest(DEEP), nest(600), b'{"madeFrom":"m","engine.json":"' + b"[" * DEEP + b'"}'])
def test_a_memory_that_is_nested_deep_is_none(data: bytes) -> None:
    text = b'{"metadata":' + json.dumps(metadata("m", **STORED)).encode() + b',"revision":1,"data":' + data + b"}"
    child = project(Resource.ControllerRevision, bounds.read(text))
    assert isinstance(child, Child)
    assert child.kept is not None
    assert child.kept.trouble is not None


def test_whatever_stands_in_a_child_it_is_projected() -> None:
    fields: Any = json.loads(nest(450))
    entry = {"manager": "graphpod", "operation": "Apply", "fieldsV1": {"f:data": fields}}
    raw = {"metadata": metadata("m", **STORED, managedFields=[entry]), "data": fields}
    for resource in (Resource.ControllerRevision, Resource.ConfigMap, Resource.HTTPRoute, Resource.ScaledObject):
        assert Child.of(resource, raw).key == Key(NAMESPACE, "demo")
        odd = Child.of(resource, {"metadata": metadata("m"), "status": [1], "spec": 3, "data": 5, "revision": []})
        assert odd.name == "m"


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """An API server of one handler, which counts what it sends, and a wire to it."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self.asked: list[dict[str, str]] = []
        self.wire: Connection
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append({**request.query, "accept": request.headers["Accept"]})
        assert request.headers["Accept-Encoding"] == "identity"
        assert self.handler is not None
        return await self.handler(request)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made, app = Server(), web.Application()
    app.router.add_route("*", "/{rest:.*}", made.answer)
    async with TestServer(app) as far:
        made.url = str(far.make_url("")).rstrip("/")
        made.wire = Connection(client.ApiClient(client.Configuration(host=made.url)), lambda code, method: None)
        yield made
        await made.wire.close()


def listing(items: list[bytes]) -> Handler:
    """Pages of a list, as a custom kind has them: items first."""

    async def handler(request: web.Request) -> web.StreamResponse:
        begin, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        more = str(begin + limit) if begin + limit < len(items) else ""
        page = items[begin : begin + limit]
        if "PartialObjectMetadata" in request.headers["Accept"]:
            page = [json.dumps({"metadata": json.loads(item)["metadata"]}).encode() for item in page]
        text = (
            b'{"items":[' + b",".join(page) + b'],"metadata":{"continue":"%s","resourceVersion":"9"}}' % more.encode()
        )
        return web.Response(body=text, content_type="application/json")

    return handler


def events(*items: bytes) -> bytes:
    """Lines of a watch."""
    return b"".join(b'{"type":"ADDED","object":' + item + b"}\n" for item in items)


def told(raw: Any) -> tuple[str, bool]:
    return raw["metadata"]["name"], bounds.BREACH in raw


async def test_a_list_goes_on_around_a_deep_object(server: Server) -> None:
    server.handler = listing([plain("a"), deep("d"), plain("z", spec={"x": 1})])
    found = await KubernetesCluster(server.wire).list(Resource.ControllerRevision, None, "", told)
    assert found.items == (("a", False), ("d", True), ("z", False))
    assert found.version == 9
    assert len(server.asked) == 1


async def test_a_page_that_is_too_long_is_asked_for_with_half_as_many_objects(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ANSWER_BYTES", 4096)
    monkeypatch.setattr(bounds, "OBJECT_BYTES", 600)
    server.handler = listing([large(f"big-{number}", 1000) for number in range(10)])
    found = await KubernetesCluster(server.wire).list(Resource.ConfigMap, None, "", told)
    assert found.items == tuple((f"big-{number}", True) for number in range(10))
    limits = [int(asked["limit"]) for asked in server.asked]
    assert limits == [200, 100, 50, 25, 12, 6, 3, 3, 3, 3]


async def test_of_one_object_that_is_too_long_by_itself_the_metadata_is_asked_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ANSWER_BYTES", 4096)
    server.handler = listing([plain("a"), large("big", 5000), plain("z")])
    found = await KubernetesCluster(server.wire).list(Resource.ConfigMap, None, "", told)
    assert found.items == (("a", False), ("big", True), ("z", False))
    assert "PartialObjectMetadataList" in server.asked[-2]["accept"]


async def test_no_more_of_an_answer_is_read_than_its_bound(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ANSWER_BYTES", 1 << 20)
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)
            sent += 65536

    server.handler = endless
    with pytest.raises(Unavailable, match="more than 1048576 bytes"):
        await KubernetesDiscovery(server.wire).serves([])
    # what both sides' buffers hold is sent, too
    assert sent < 32 << 20


async def test_of_a_refusal_the_beginning_is_kept(server: Server) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "no: " + "x" * (1 << 20)}, status=422)

    server.handler = refuse
    with pytest.raises(ServerRefused) as caught:
        await KubernetesCluster(server.wire).event({"metadata": {"namespace": NAMESPACE}})
    assert len(str(caught.value)) < 4096


async def test_a_write_that_is_not_answered_in_time_is_told_apart(server: Server) -> None:
    release = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    server.handler = hang
    with pytest.raises(TimedOut):
        await server.wire.request("PATCH", "/", body={}, seconds=0.1)
    release.set()


async def test_a_watch_goes_on_after_a_deep_object(server: Server) -> None:
    async def lines(request: web.Request) -> web.StreamResponse:
        events = [
            b'{"type":"ADDED","object":' + item + b"}\n" for item in (plain("a"), deep("d"), large("l"), plain("z"))
        ]
        return web.Response(body=b"".join(events))

    server.handler, seen = lines, []
    watches = KubernetesWatches(server.wire)
    await watches.watch(Resource.ConfigMap, None, "", 7, lambda event, raw: seen.append((event, *told(raw))))
    assert seen == [("ADDED", "a", False), ("ADDED", "d", True), ("ADDED", "l", True), ("ADDED", "z", False)]


async def test_an_event_that_is_too_long_has_the_kind_listed_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ANSWER_BYTES", 4096)

    async def line(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b'{"type":"ADDED","object":' + large("l", 1 << 20))

    server.handler = line
    with pytest.raises(Expired):
        await KubernetesWatches(server.wire).watch(Resource.ConfigMap, None, "", 7, lambda event, raw: None)


async def test_what_kopf_reads_is_within_its_bounds(server: Server) -> None:
    """kopf's own reader of lines, and of lists, over a session with our responses."""
    items = [plain("a"), deep("d"), deep("e", 600), large("l"), plain("z")]
    async with aiohttp.ClientSession(
        response_class=bounded(lambda: True), headers={"Accept": "*/*", "Accept-Encoding": "identity"}
    ) as session:
        server.handler = listing(items)
        async with await session.get(f"{server.url}/?limit=9") as response:
            page = await response.json()
        assert [told(item) for item in page["items"]] == [
            ("a", False),
            ("d", True),
            ("e", False),
            ("l", True),
            ("z", False),
        ]
        assert page["metadata"] == {"resourceVersion": "9", "continue": ""}

        async def groups(request: web.Request) -> web.StreamResponse:
            return web.json_response({"kind": "APIGroupList", "groups": [{"name": "a"}]})

        server.handler = groups
        async with await session.get(f"{server.url}/apis") as response:
            assert await response.json() == {"kind": "APIGroupList", "groups": [{"name": "a"}]}

        async def lines(request: web.Request) -> web.StreamResponse:
            return web.Response(body=events(*items))

        server.handler = lines
        async with await session.get(f"{server.url}/") as response:
            found = [line async for line in iter_jsonlines(response.content)]
        seen = [told(json.loads(line)["object"]) for line in found]
        assert seen == [("a", False), ("d", True), ("e", True), ("l", True), ("z", False)]


async def test_a_list_too_long_for_kopf_is_asked_for_in_shorter_pages_down_to_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ANSWER_BYTES", 4096)
    configure(chosen := kopf.OperatorSettings())
    chosen.watching.chunk_size = 2
    server.handler = listing([large("a", 5000)] * 2)
    headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
    responses = bounded(lambda: shorten(chosen))
    async with aiohttp.ClientSession(response_class=responses, headers=headers) as session:
        async with await session.get(f"{server.url}/?limit=2") as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.json()
        assert chosen.watching.chunk_size == 1
        async with await session.get(f"{server.url}/?limit=1") as response:
            with pytest.raises(ValueError, match="a list of more than"):
                await response.json()


async def test_a_service_that_breaks_a_bound_is_told_so_and_another_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.cluster.put(Resource.InferenceService, inference_service())
    with caplog.at_level(logging.WARNING):
        world.cluster.put(Resource.InferenceService, bounds.read(deep_service()))
        await world.relist()
    assert "InferenceService ns/demo" in str([vars(record) for record in caplog.records])
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "SpecTooLarge")
    assert world.kinds() == ["status"]


def deep_service() -> bytes:
    return json.dumps(inference_service()).encode().replace(b'"model":', b'"podTemplate":' + nest(DEEP) + b',"model":')


async def test_a_stray_object_that_breaks_a_bound_is_named_by_log_metric_and_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.cluster.put(Resource.InferenceService, inference_service())
    stray = {"metadata": metadata("stray", **STORED), bounds.BREACH: "the object has 900 KiB, more than 512"}
    world.cluster.put(Resource.ConfigMap, stray)
    await world.relist()
    assert any(getattr(record, "child", "") == "ConfigMap ns/stray" for record in caplog.records)
    world.meters.watch(world.store, world.queue, lambda: True)
    assert 'object_skipped{kind="ConfigMap",name="stray",namespace="ns"} 1.0' in world.meters.text().decode()
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")
    (event,) = (event for event in world.cluster.events if event["reason"] == "ObjectSkipped")
    assert event["message"].startswith("ConfigMap stray: the object has 900 KiB")
    del world.cluster.objects[Resource.ConfigMap, NAMESPACE, "stray"]
    await world.relist()
    assert "stray" not in world.meters.text().decode()
