"""The port over pages: what is kept of a list, and what is not."""

import weakref
from typing import Any

from graphpod_operator.cluster import KubernetesCluster
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
