"""The port over pages and over lines: what is kept of a list, and what a watch tells."""

import contextlib
import gc
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from graphpod_operator.kube.bounds import Page, PageMetadata
from graphpod_operator.kube.client import OWN_PAGE, PAGE, KubernetesCluster, KubernetesWatches
from graphpod_operator.kube.cluster import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Raw,
    ServerRefused,
    Terminating,
    Unavailable,
)
from graphpod_operator.kube.connection import server_error
from graphpod_operator.kube.field_ownership import FIELD_MANAGER
from graphpod_operator.kube.resources import Resource

PAGES = 3


def held() -> int:
    """Bodies of a Paged that are held by anybody."""
    return sum(type(thing) is dict and thing.get("mark") == [MARK] for thing in gc.get_objects())


MARK = "of a page"


class Paged:
    """A wire that answers a list in pages of two, and looks whether bodies of earlier ones are still held."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.asked: list[dict[str, str]] = []

    async def page(self, path: str, query: dict[str, str]) -> Page:
        self.held.append(held())
        self.asked.append(dict(query))
        page = len(self.asked)
        items = [msgspec.Raw(json.dumps({"name": f"{page}-{number}", "mark": [MARK]}).encode()) for number in range(2)]
        return Page(PageMetadata("7", str(page) if page < PAGES else ""), items)


async def test_a_list_keeps_what_it_is_told_to_and_one_body_at_a_time() -> None:
    wire, most = Paged(), 0

    def keep(raw: Raw) -> str:
        nonlocal most
        most = max(most, held())
        return str(raw["name"])

    listing = await KubernetesCluster(wire).list(Resource.Pod, None, "a=b", keep)  # type: ignore[arg-type]
    assert listing.items == ("1-0", "1-1", "2-0", "2-1", "3-0", "3-1")
    assert listing.version == 7
    first = {"limit": str(PAGE), "labelSelector": "a=b"}
    assert wire.asked == [first, {**first, "continue": "1"}, {**first, "continue": "2"}]
    assert (wire.held, most) == ([0, 0, 0], 1)


async def test_services_are_listed_in_large_pages() -> None:
    wire = Paged()
    await KubernetesCluster(wire).list(Resource.InferenceService, None, "", lambda raw: raw["name"])  # type: ignore[arg-type]
    assert wire.asked[0] == {"limit": str(OWN_PAGE)}


class Requests:
    """A wire that keeps what it is asked, and answers so or refuses with a status."""

    def __init__(self, status: int = 200, answer: Raw | None = None) -> None:
        self.status, self.answer = status, answer or {}
        self.asked: list[tuple[str, str, Raw | None, dict[str, str] | None]] = []

    async def request(self, method: str, path: str, *, body: Raw | None = None, **how: Any) -> Raw:
        self.asked.append((method, path, body, how.get("query")))
        if self.status != 200:
            raise server_error(self.status, f"{method} {path}", self.answer)
        return {"metadata": {"name": "stored"}}


async def test_each_request_names_its_object_and_says_how_it_writes() -> None:
    wire = Requests()
    cluster = KubernetesCluster(wire)  # type: ignore[arg-type]
    body = {"metadata": {"namespace": "ns", "name": "demo"}}
    deployment, service = "/apis/apps/v1/namespaces/ns/deployments", "/apis/graphpod.dev/v1alpha1/namespaces/ns"
    assert await cluster.get(Resource.Deployment, "ns", "demo") == {"metadata": {"name": "stored"}}
    await cluster.apply(Resource.Deployment, body, force=True)
    await cluster.apply_status(body)
    await cluster.delete(Resource.Deployment, "ns", "demo", "a-uid")
    await cluster.event(body)
    ours = {"fieldManager": FIELD_MANAGER, "force": "true"}
    exactly = {"preconditions": {"uid": "a-uid"}, "propagationPolicy": "Background"}
    assert wire.asked == [
        ("GET", f"{deployment}/demo", None, None),
        ("PATCH", f"{deployment}/demo", body, ours),
        ("PATCH", f"{service}/inferenceservices/demo/status", body, ours),
        ("DELETE", f"{deployment}/demo", exactly, None),
        ("POST", "/api/v1/namespaces/ns/events", body, None),
    ]


@pytest.mark.parametrize(("status", "raises"), [(404, False), (403, True)])
async def test_an_object_that_is_gone_is_none_and_needs_no_delete(status: int, raises: bool) -> None:
    cluster = KubernetesCluster(Requests(status))  # type: ignore[arg-type]
    with pytest.raises(ServerRefused) if raises else contextlib.nullcontext():
        assert await cluster.get(Resource.Deployment, "ns", "demo") is None
    with pytest.raises(ServerRefused) if raises else contextlib.nullcontext():
        await cluster.delete(Resource.Deployment, "ns", "demo", "a-uid")


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


ADDED = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"8"}}}'


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
        pytest.param(b'{"type":"ERROR","object":{"code":"x","details":[]}}', Unavailable, id="no-number"),
        pytest.param(b"<html>", Unavailable, id="no-json"),
        pytest.param(b'{"type":"MODIFIED","object":{"metadata":{"name":"a"}}}', Unavailable, id="no-version"),
        pytest.param(b'{"type":"MODIFIED","object":[]}', Unavailable, id="no-object"),
        pytest.param(b'{"type":[],"object":{}}', Unavailable, id="no-type"),
    ],
)
async def test_a_watch_that_ends_with_an_error_raises_it(line: bytes, error: type[ApiError]) -> None:
    with pytest.raises(error):
        await watched(Lines(ADDED, line))


ENDING = {"causes": [{"reason": "NamespaceTerminating"}]}
ANSWERS: list[tuple[int, dict[str, object], type[ApiError]]] = [
    (400, {"message": "no"}, ServerRefused),
    (403, {"message": "no"}, ServerRefused),
    (403, {"message": "no", "details": ENDING}, Terminating),
    (404, {"details": {"kind": "namespaces"}}, Terminating),
    (404, {"details": {"kind": "deployments"}}, ServerRefused),
    (403, {"message": "no", "details": {"causes": [[]]}}, ServerRefused),
    (404, {"message": "no", "details": "namespaces"}, ServerRefused),
    (409, {"reason": "AlreadyExists"}, AlreadyExists),
    (409, {"details": ENDING}, Conflict),
    (410, {}, Expired),
    (422, {}, ServerRefused),
    (429, {}, Unavailable),
    (499, {}, ServerRefused),
    (500, {}, Unavailable),
    (503, {"details": {"kind": "namespaces"}}, Unavailable),
    # The API server answers 500 for a body that it cannot type; sent again it is no better.
    (500, {"message": "failed to create typed patch object (a/b): .spec.x: field not declared"}, ServerRefused),
]


@pytest.mark.parametrize(("status", "answer", "error"), ANSWERS, ids=str)
def test_what_an_answer_comes_to(status: int, answer: dict[str, object], error: type[ApiError]) -> None:
    made = server_error(status, "apply a/b", answer)
    assert type(made) is error
    assert made.status == status
    assert str(made) == f"{answer.get('message') or ''} ({status} to apply a/b)"


@pytest.mark.parametrize(("status", "made"), [(200, True), (409, False)])
async def test_an_object_that_is_never_read_is_made_where_its_name_is_free(status: int, made: bool) -> None:
    wire, body = Requests(status, {"reason": "AlreadyExists"}), {"metadata": {"namespace": "n", "name": "x"}}
    assert await KubernetesCluster(wire).create(Resource.Secret, body) is made  # type: ignore[arg-type]
    assert wire.asked == [("POST", "/api/v1/namespaces/n/secrets", body, {"fieldManager": FIELD_MANAGER})]


QUOTA = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'


@pytest.mark.parametrize(
    "answer", [{"reason": "Conflict", "message": QUOTA}, {}, {"reason": ["AlreadyExists"]}], ids=str
)
async def test_a_conflict_about_something_else_does_not_count_as_an_object_of_that_name(answer: Raw) -> None:
    with pytest.raises(Conflict):
        await KubernetesCluster(Requests(409, answer)).create(Resource.Secret, {"metadata": {"namespace": "n"}})  # type: ignore[arg-type]


async def test_a_right_that_is_missing_is_not_taken_for_a_name_that_is_not_free() -> None:
    with pytest.raises(ServerRefused):
        await KubernetesCluster(Requests(403)).create(Resource.Secret, {"metadata": {"namespace": "n"}})  # type: ignore[arg-type]
