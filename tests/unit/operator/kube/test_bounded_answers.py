"""Lists, watches and writes of the operator's own client: no answer is read beyond its bounds."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from graphpod_operator.kube import bounds
from graphpod_operator.kube.client import KubernetesCluster, KubernetesDiscovery, KubernetesWatches
from graphpod_operator.kube.cluster import Expired, ServerRefused, TimedOut, Unavailable
from graphpod_operator.kube.resources import Resource
from tests.unit.operator.kube.oversized import Server, deep, events, large, listing, plain, serving, told
from tests.unit.operator.objects import NAMESPACE


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        yield made


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
        return web.Response(body=events(plain("a"), deep("d"), large("l"), plain("z")))

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
