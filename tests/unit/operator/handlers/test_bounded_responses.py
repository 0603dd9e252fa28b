"""kopf's session: what kopf reads of lists and watches is within bounds."""

import json
from collections.abc import AsyncIterator

import aiohttp
import kopf
import pytest
from aiohttp import web
from kopf._cogs.clients.api import iter_jsonlines

from graphpod_operator.handlers.bounded_responses import bounded
from graphpod_operator.handlers.settings import configure, shorten
from graphpod_operator.kube import bounds
from tests.unit.operator.kube.oversized import Server, deep, events, large, listing, plain, serving, told


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        yield made


async def test_what_kopf_reads_is_within_its_bounds(server: Server) -> None:
    """kopf's own reader of lines, and of lists, over a session with our responses."""
    items = [plain("a"), deep("d"), deep("e", 600), large("l"), plain("z")]
    async with aiohttp.ClientSession(
        response_class=bounded(lambda: True, {}), headers={"Accept": "*/*", "Accept-Encoding": "identity"}
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
    responses = bounded(lambda: shorten(chosen), {})
    async with aiohttp.ClientSession(response_class=responses, headers=headers) as session:
        async with await session.get(f"{server.url}/?limit=2") as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.json()
        assert chosen.watching.chunk_size == 1
        async with await session.get(f"{server.url}/?limit=1") as response:
            with pytest.raises(ValueError, match="a list of more than"):
                await response.json()


async def test_the_first_list_of_services_is_answered_by_the_version_of_ours_and_later_ones_as_they_are(
    server: Server,
) -> None:
    listed: dict[str | None, int] = {None: 5, "ns": 6}
    everywhere, one = ("inferenceservices", "namespaces/ns/inferenceservices")
    server.handler = listing([plain("a"), plain("b")])
    headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
    found = []
    async with aiohttp.ClientSession(response_class=bounded(lambda: True, listed), headers=headers) as session:
        for path in ("namespaces/ns/pods", one, one, everywhere, everywhere):
            url = f"{server.url}/apis/graphpod.dev/v1alpha1/{path}?limit=9"
            async with await session.get(url) as response:
                page = await response.json()
            found.append((path, page["metadata"]["resourceVersion"], len(page["items"])))
    assert found == [
        ("namespaces/ns/pods", "9", 2),
        (one, "6", 0),
        (one, "9", 2),
        (everywhere, "5", 0),
        (everywhere, "9", 2),
    ]
