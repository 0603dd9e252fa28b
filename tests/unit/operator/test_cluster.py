"""The port over pages and over lines: what is kept of a list, and what a watch tells."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from graphpod_operator.cluster import KubernetesCluster, KubernetesWatches
from graphpod_operator.port import ApiError, Expired, Unavailable
from graphpod_operator.resource import Resource

PAGES = 3


class Body(dict[str, Any]):
    """An object whose end can be seen."""


class Paged:
    """A wire that answers a list in pages, and looks which bodies of earlier pages are still held."""

    def __init__(self) -> None:
        self.bodies: list[weakref.ref[Body]] = []
        self.held: list[int] = []
        self.asked: list[str | None] = []

    async def request(self, method: str, path: str, *, query: dict[str, str]) -> dict[str, Any]:
        self.held.append(sum(body() is not None for body in self.bodies))
        self.asked.append(query.get("continue"))
        page = len(self.asked)
        items = [Body(name=f"{page}-{number}") for number in range(2)]
        self.bodies += map(weakref.ref, items)
        more = {"continue": str(page)} if page < PAGES else {}
        return {"items": items, "metadata": {"resourceVersion": "7", **more}}


async def test_a_list_keeps_what_it_is_told_to_and_no_body_of_an_earlier_page() -> None:
    wire = Paged()
    cluster = KubernetesCluster(wire, lambda: None)  # type: ignore[arg-type]
    listing = await cluster.list(Resource.Pod, None, "", lambda raw: raw["name"])
    assert listing.items == ("1-0", "1-1", "2-0", "2-1", "3-0", "3-1")
    assert listing.version == 7
    assert wire.asked == [None, "1", "2"]
    assert wire.held == [0, 0, 0]


class Lines:
    """A wire that tells these lines."""

    def __init__(self, *lines: bytes) -> None:
        self.told = lines
        self.path = ""
        self.query: dict[str, str] = {}

    async def lines(self, path: str, query: dict[str, str], silent: float, tell: Callable[[bytes], None]) -> None:
        self.path, self.query = path, query
        for line in self.told:
            tell(line)


ADDED = b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}'


async def watched(wire: Lines) -> list[str]:
    told: list[str] = []
    watches = KubernetesWatches(wire)  # type: ignore[arg-type]
    await watches.watch(Resource.Deployment, "ns", "a=b", 7, lambda event, _: told.append(event))
    return told


async def test_a_watch_goes_on_from_a_version_with_bookmarks_and_tells_each_line() -> None:
    wire = Lines(ADDED, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}')
    assert await watched(wire) == ["ADDED", "BOOKMARK"]
    assert wire.path == "/apis/apps/v1/namespaces/ns/deployments"
    asked = {name: wire.query[name] for name in ("watch", "allowWatchBookmarks", "resourceVersion", "labelSelector")}
    assert asked == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "7", "labelSelector": "a=b"}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        pytest.param(b'{"type":"ERROR","object":{"code":410,"message":"too old"}}', Expired, id="410"),
        pytest.param(b'{"type":"ERROR","object":{"code":500,"message":"etcd"}}', Unavailable, id="500"),
        pytest.param(b'{"type":"ERROR","object":{}}', Unavailable, id="no-code"),
        pytest.param(b"<html>", Unavailable, id="no-json"),
    ],
)
async def test_a_watch_that_ends_with_an_error_raises_it(line: bytes, error: type[ApiError]) -> None:
    with pytest.raises(error):
        await watched(Lines(ADDED, line))
