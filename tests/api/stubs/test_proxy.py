"""The fault proxy, with kubectl and with plain HTTP: each fault does to a request what it says, and to no other."""

import http.client
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stubs.faults.fault import Answer, Cut, Freeze, Point, Slow, Turn, WatchError
from stubs.kubecall import WRITES, Verb, Which
from stubs.kubeconfig import Kubeconfig
from stubs.proxy import Proxy
from testbed import Cluster
from testbed.command import run
from tests.places import Place

ROOT = Path(__file__).parents[3]
LIMIT = 20.0  # s one answer may take
GIVEN_UP = 3.0  # s after which an asker who gets nothing leaves; a busy machine has shaken hands by then


@dataclass(frozen=True)
class Client:
    """Plain HTTP about the ConfigMaps of one namespace, with the token of a kubeconfig."""

    kubeconfig: Kubeconfig
    namespace: str

    def ask(self, method: str, path: str = "", body: Any = None, timeout: float = LIMIT) -> http.client.HTTPResponse:
        """The answer with its body unread; raises `HTTPError` for a no."""
        token = self.kubeconfig.raw["users"][0]["user"]["token"]
        request = urllib.request.Request(
            f"{self.kubeconfig.server}/api/v1/namespaces/{self.namespace}/configmaps{path}",
            json.dumps(body).encode() if body else None,
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method=method,
        )
        answer: http.client.HTTPResponse = urllib.request.urlopen(
            request, timeout=timeout, context=self.kubeconfig.tls()
        )
        return answer

    def create(self, name: str, timeout: float = LIMIT) -> int:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        with self.ask("POST", body=manifest, timeout=timeout) as answer:
            return answer.status

    def watch(self) -> http.client.HTTPResponse:
        """A watch of what happens from now on."""
        with self.ask("GET") as answer:
            version = json.load(answer)["metadata"]["resourceVersion"]
        return self.ask("GET", f"?watch=true&resourceVersion={version}")


@pytest.fixture(scope="module")
def proxy(api_cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(api_cluster.kubeconfig).serving() as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _well(proxy: Proxy) -> Iterator[None]:
    """Every test leaves the proxy without faults."""
    yield
    proxy.board.clear()


@pytest.fixture
def kubeconfig(proxy: Proxy, api_cluster: Cluster, tmp_path: Path) -> Path:
    return proxy.kubeconfig(api_cluster.kubeconfig, tmp_path / "kubeconfig")


@pytest.fixture
def place(api_cluster: Cluster, make_place: Callable[..., Place]) -> Place:
    return make_place(api_cluster)


@pytest.fixture
def client(kubeconfig: Path, place: Place) -> Client:
    return Client(Kubeconfig.load(kubeconfig), place.namespace)


def here(place: Place, *verbs: Verb) -> Which:
    """Requests about this test's ConfigMaps."""
    return Which(frozenset(verbs), resource="configmaps", namespace=place.namespace)


def exists(place: Place, name: str) -> bool:
    """By the API server itself, not through the proxy."""
    return f"configmap/{name}" in place.kubectl("get", "configmap", "-o", "name").split()


def test_kubectl_works_through_the_proxy_and_is_counted(
    proxy: Proxy, kubeconfig: Path, api_cluster: Cluster, place: Place
) -> None:
    kubectl = kubectl_through(kubeconfig, api_cluster, place)
    run([*kubectl, "create", "configmap", "one", "--from-literal=a=b"])
    run([*kubectl, "apply", "--server-side", "-f", "-"], input=json.dumps(config_map("two")))
    assert run([*kubectl, "get", "configmap", "one", "-o", "jsonpath={.data.a}"]) == "b"
    run([*kubectl, "delete", "configmap", "one", "--wait=false"])

    found = {verb: proxy.count(here(place, verb)) for verb in (Verb.CREATE, Verb.PATCH, Verb.GET, Verb.DELETE)}
    assert found == {Verb.CREATE: 1, Verb.PATCH: 1, Verb.GET: 1, Verb.DELETE: 1}
    assert proxy.count(Which(WRITES, namespace=place.namespace, user_agent="kubectl")) == 3
    assert proxy.counts()["patch configmaps"] >= 1


def kubectl_through(kubeconfig: Path, cluster: Cluster, place: Place) -> list[str | Path]:
    cache = f"--cache-dir={kubeconfig.parent}/cache"
    return [cluster.binary("kubectl"), f"--kubeconfig={kubeconfig}", cache, "-n", place.namespace]


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (409, "Conflict"),
        (410, "Expired"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ],
)
def test_a_status_is_answered_in_the_servers_place_and_nothing_is_done(
    proxy: Proxy, client: Client, place: Place, status: int, reason: str
) -> None:
    proxy.add(Answer(status, retry_after=7), here(place, Verb.CREATE), Turn(times=1))
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.create("one")
    said = json.loads(refused.value.read())
    assert (refused.value.code, said["code"], said["reason"]) == (status, status, reason)
    assert refused.value.headers["Retry-After"] == "7"
    assert not exists(place, "one")
    assert client.create("one") == 201, "one time was one time"


def test_kubectl_obeys_the_retry_after_of_a_429(
    proxy: Proxy, kubeconfig: Path, api_cluster: Cluster, place: Place
) -> None:
    proxy.add(Answer(429, retry_after=1), here(place, Verb.LIST), Turn(times=1))
    run([*kubectl_through(kubeconfig, api_cluster, place), "get", "configmap", "-o", "name"])
    assert proxy.count(here(place, Verb.LIST)) == 2


def test_a_write_frozen_before_it_is_done_is_lost_with_its_asker(
    proxy: Proxy, client: Client, place: Place, eventually
) -> None:
    client.create("first")
    stop = proxy.add(Freeze(), here(place, Verb.CREATE))
    with pytest.raises(TimeoutError):
        client.create("second", timeout=GIVEN_UP)
    stop.reached()
    eventually(lambda: proxy.connections == 0)  # it has heard that the asker left
    proxy.lift(stop)
    assert client.create("third") == 201
    assert not exists(place, "second")


def test_a_write_frozen_after_it_is_done_is_done_though_nobody_hears_of_it(
    proxy: Proxy, client: Client, place: Place, eventually
) -> None:
    proxy.add(Freeze(Point.Answer), here(place, Verb.CREATE))
    with pytest.raises(TimeoutError):
        client.create("one", timeout=GIVEN_UP)
    eventually(lambda: exists(place, "one"))


def test_an_open_watch_freezes_and_later_tells_everything_it_held(
    proxy: Proxy, client: Client, place: Place, eventually
) -> None:
    with client.watch() as watch:
        freeze = proxy.add(Freeze(), here(place, Verb.WATCH))
        freeze.reached()
        place.kubectl("create", "configmap", "one")
        place.kubectl("create", "configmap", "two")
        proxy.lift(freeze)
        seen: list[str] = []
        while seen[-1:] != ["two"]:
            seen.append(json.loads(watch.readline())["object"]["metadata"]["name"])
    assert [name for name in seen if name in ("one", "two")] == ["one", "two"]


def test_a_watch_is_told_that_its_version_is_too_old(proxy: Proxy, client: Client, place: Place) -> None:
    with client.watch() as watch:
        proxy.add(WatchError(410), here(place, Verb.WATCH), Turn(times=1))
        events = [json.loads(line) for line in watch]
    assert (events[-1]["type"], events[-1]["object"]["code"]) == ("ERROR", 410)


def test_a_watch_is_cut_in_the_middle_of_an_event(proxy: Proxy, client: Client, place: Place) -> None:
    place.kubectl("create", "configmap", "one")
    proxy.add(Cut(after_events=1, after_bytes=10), here(place, Verb.WATCH))
    place.kubectl("create", "configmap", "two")
    with client.ask("GET", "?watch=true&resourceVersion=0") as watch:
        whole = json.loads(watch.readline())
        with pytest.raises(http.client.IncompleteRead) as broken:
            watch.read()
    assert whole["type"] == "ADDED"
    assert broken.value.partial == b'{"type":"A'


def test_a_list_is_cut_in_the_middle(proxy: Proxy, client: Client, place: Place) -> None:
    proxy.add(Cut(after_bytes=20), here(place, Verb.LIST))
    with client.ask("GET") as answer, pytest.raises(http.client.IncompleteRead) as broken:
        answer.read()
    assert len(broken.value.partial) == 20


def test_a_slow_answer_waits_and_goes_on_at_once_when_lifted(proxy: Proxy, client: Client, place: Place) -> None:
    before = proxy.add(Slow(delay=3600), here(place, Verb.LIST))
    with pytest.raises(TimeoutError):
        client.ask("GET", timeout=GIVEN_UP)
    before.reached()
    proxy.lift(before)
    body = proxy.add(Slow(bytes_per_second=1), here(place, Verb.LIST))
    with client.ask("GET") as answer:
        begun = answer.read(1)
        proxy.lift(body)
        assert json.loads(begun + answer.read())["kind"] == "ConfigMapList"


def test_nobody_listens_while_the_proxy_refuses(proxy: Proxy, client: Client) -> None:
    watch = client.watch()
    proxy.refuse()
    try:
        with pytest.raises(urllib.error.URLError, match="Connection refused"):
            client.ask("GET")
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            watch.read()
    finally:
        proxy.accept()
    assert client.ask("GET").status == 200


def test_a_protocol_upgrade_is_refused_with_words(proxy: Proxy, kubeconfig: Path) -> None:
    config = Kubeconfig.load(kubeconfig)
    request = urllib.request.Request(
        f"{config.server}/api/v1/namespaces/x/pods/y/exec", headers={"Upgrade": "SPDY/3.1"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=LIMIT, context=config.tls())
    assert (refused.value.code, b"upgrades" in refused.value.read()) == (501, True)


def test_as_a_program_it_takes_faults_from_a_file_and_through_its_control_port(
    api_cluster: Cluster, place: Place, tmp_path: Path
) -> None:
    row = {"effect": "Answer", "status": 500, "verbs": ["create"], "namespace": place.namespace}
    (tmp_path / "faults.json").write_text(json.dumps([row]))
    argv = [sys.executable, "-m", "stubs.proxy", "--kubeconfig", api_cluster.kubeconfig]
    argv += ["--write-kubeconfig", tmp_path / "kubeconfig", "--faults", tmp_path / "faults.json"]
    program = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    try:
        control = program.stdout.readline().split()[-1]
        assert program.stdout.readline() == f"KUBECONFIG={tmp_path / 'kubeconfig'}\n"
        client = Client(Kubeconfig.load(tmp_path / "kubeconfig"), place.namespace)
        with pytest.raises(urllib.error.HTTPError, match="500"):
            client.create("one")
        assert asked(control, "GET", "/faults") == [{"number": 1, "hits": 1, **row}]
        assert asked(control, "DELETE", "/faults/1") == []
        assert client.create("one") == 201
        assert asked(control, "POST", "/faults", {"effect": "Answer", "status": 503, "times": 1})["number"] == 2
        with pytest.raises(urllib.error.HTTPError, match="503"):
            client.ask("GET")
        assert asked(control, "GET", "/counts") == {"create configmaps": 2, "list configmaps": 1}
        with pytest.raises(urllib.error.HTTPError) as refused:
            asked(control, "POST", "/faults", {"effect": "Melt"})
        assert "one of Freeze, Answer" in json.loads(refused.value.read())["error"]
    finally:
        program.terminate()
        program.wait(LIMIT)


def asked(control: str, method: str, path: str, body: Any = None) -> Any:
    """The answer of a control port."""
    request = urllib.request.Request(control + path, json.dumps(body).encode() if body else None, method=method)
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return json.load(answer)
