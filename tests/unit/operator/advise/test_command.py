"""`graphpod advise`: its text and JSON, what it reads, and what it says where it can read nothing."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from prometheus_client.parser import text_string_to_metric_families

from graphpod_operator import cli
from graphpod_operator.advise import reader
from graphpod_operator.kube.cluster import Unavailable
from graphpod_operator.kube.port_forward import ForwardDenied, NoAnswer
from graphpod_operator.kube.resources import Resource
from graphpod_policy import Phase
from tests.unit.operator.cluster import FakeCluster
from tests.unit.operator.ladders import exposition
from tests.unit.operator.objects import NAMESPACE, inference_service, pod

GOLDENS = Path(__file__).parents[1] / "goldens" / "advise"
ADVISE = ("advise", "demo", "-n", NAMESPACE)
BOTH = {Phase.Prefill: (3, 5, 9, 17) * 300, Phase.Decode: (3,) * 1400 + (5,) * 1400}
DECODE_ONLY = {Phase.Prefill: (4,) * 12, Phase.Decode: (3,) * 2000}
GOOD = {Phase.Prefill: (4, 8, 16, 32) * 300, Phase.Decode: (1, 2, 4, 8) * 300}
GAPS = {Phase.Prefill: (40, 200) * 800, Phase.Decode: (8,) * 1000}

Outcome = tuple[int, str, str]


class Wire:
    """A connection that closes."""

    async def close(self) -> None: ...


class Cluster:
    """A service `demo` with pods that answer."""

    def __init__(self) -> None:
        self.fake = FakeCluster()
        self.answers: dict[str, bytes | Exception] = {}
        self.asked: list[tuple[str, str, int, str]] = []

    def put(self, answers: Mapping[str, bytes | Exception], ready: bool = True) -> None:
        self.fake.put(Resource.InferenceService, inference_service())
        for name, answer in answers.items():
            self.fake.put(Resource.Pod, pod(name, ready=ready))
            self.answers[name] = answer

    async def forward(
        self, wire: Wire, namespace: str, name: str, port: int, path: str, most: int, seconds: float
    ) -> bytes:
        self.asked.append((namespace, name, port, path))
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()

    async def connect(answered: object, context: str | None = None) -> Wire:
        return Wire()

    monkeypatch.setattr(reader.connection, "connect", connect)
    monkeypatch.setattr(reader, "KubernetesCluster", lambda wire: made.fake)
    monkeypatch.setattr(reader.port_forward, "get", made.forward)
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def ran(*arguments: str) -> Outcome:
        code = cli.main([*ADVISE, *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return ran


def golden(name: str, text: str) -> None:
    """With UPDATE_GOLDENS=1 in the environment the text is written instead; read the diff before you commit it."""
    file = GOLDENS / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize(
    ("name", "pods"),
    [
        ("both", {"demo-1": exposition(BOTH)}),
        ("decode", {"demo-1": exposition(DECODE_ONLY), "demo-2": exposition(DECODE_ONLY)}),
        ("keep", {"demo-1": exposition(GOOD)}),
        ("too-little", {"demo-1": exposition({})}),
        ("gaps", {"demo-1": exposition(GAPS, {Phase.Prefill: (64, 1024), Phase.Decode: (8,)})}),
        ("eager", {"demo-1": exposition({}, {Phase.Prefill: (), Phase.Decode: ()})}),
        ("one-silent", {"demo-1": exposition(BOTH), "demo-2": NoAnswer("no answer within 10 s")}),
    ],
)
def test_the_text_is_that_of_the_golden_and_fits_a_terminal(
    cluster: Cluster, run: Callable[..., Outcome], name: str, pods: dict[str, bytes | Exception]
) -> None:
    cluster.put(pods)
    code, said, complained = run()
    assert (code, complained) == (0, "")
    assert set(cluster.asked) == {(NAMESPACE, one, 8001, "/metrics") for one in pods}
    assert all(len(line) <= 80 for line in said.splitlines() if "kubectl" not in line)
    golden(name, said)


def test_json_has_the_numbers_and_a_patch_that_the_schema_takes(cluster: Cluster, run: Callable[..., Outcome]) -> None:
    cluster.put({"demo-1": exposition(DECODE_ONLY)})
    _, said, _ = run("-o", "json")
    found = json.loads(said)
    decode = found["phases"]["decode"]
    assert (decode["passes"], decode["padding"], decode["promisedPadding"]) == (2000, 2000, 0)
    assert decode["neverUsed"] == [1, 2]
    assert found["patch"]["spec"]["graph"]["sizes"] == {"decode": decode["better"]}
    assert found["phases"]["prefill"]["verdict"] == "TooFewPasses"
    assert (found["pods"], found["seconds"], found["troubles"]) == (["demo-1"], None, [])


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("advise", "pod/demo"), "expected NAME or gisvc/NAME"),
        ((*ADVISE, "--since", "2h"), "--since needs --prometheus"),
        ((*ADVISE, "--prometheus", "http://x", "--since", "soon"), "is not a duration"),
        ((*ADVISE, "--prometheus", "localhost:9090"), "expected a URL"),
        (("advise", "demo", "-n", 'a"b', "--prometheus", "http://localhost:1"), "expected names"),
        ((*ADVISE, "--prometheus", "http://127.0.0.1:1"), "no answer"),
    ],
)
def test_a_wrong_argument_names_the_right_one(
    arguments: Sequence[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(list(arguments)) == 2
    assert wrong in capsys.readouterr().err


def test_what_cannot_be_read_names_the_next_step(
    cluster: Cluster, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "does not exist in namespace ns" in run()[2]
    cluster.put({"demo-1": b""}, ready=False)
    code, said, complained = run()
    assert (code, said) == (2, "")
    assert "no ready pod to read; see: kubectl describe gisvc demo -n ns" in complained
    cluster.put({"demo-1": ForwardDenied("you may not port-forward to it")})
    assert "pod demo-1: you may not port-forward to it" in run()[2]
    cluster.put({"demo-1": b"nothing of ours"})
    assert "pod demo-1: graphpod_graph_requested_rows of prefill is missing" in run()[2]

    async def nowhere(answered: object, context: str | None = None) -> Wire:
        raise Unavailable(0, "no cluster to ask: set KUBECONFIG")

    monkeypatch.setattr(reader.connection, "connect", nowhere)
    assert "set KUBECONFIG" in run()[2]


class Prometheus:
    """Answers instant queries: what was at the end, and what an hour before."""

    def __init__(self) -> None:
        self.after: Any = []
        self.before: Any = []
        self.queries: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                outer.queries.append(asked["query"][0])
                found = outer.after if len(outer.queries) % 2 else outer.before
                status, body = found if isinstance(found, tuple) else (200, _vector(found))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"


def _vector(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()


def scraped(pod: str, text: bytes) -> list[dict[str, Any]]:
    """An exposition as Prometheus answers it."""
    return [
        {"metric": {"__name__": sample.name, "pod": pod, **sample.labels}, "value": [1.0, str(sample.value)]}
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name.startswith("graphpod_graph_")
    ]


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    made = Prometheus()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(5)


def test_prometheus_gives_what_was_served_between_two_moments(
    prometheus: Prometheus, run: Callable[..., Outcome]
) -> None:
    """One pod served before and after, one restarted, one is new."""
    prometheus.before = [
        *scraped("a", exposition({Phase.Decode: (1,) * 500})),
        *scraped("b", exposition({Phase.Decode: (8,) * 5000})),
    ]
    prometheus.after = [
        *scraped("a", exposition({Phase.Decode: (1,) * 500 + (3,) * 1000})),
        *scraped("b", exposition({Phase.Decode: (3,) * 400})),
        *scraped("c", exposition({Phase.Decode: (3,) * 600})),
    ]
    _, said, complained = run("--prometheus", prometheus.url, "--since", "2h", "-o", "json")
    assert complained == ""
    found = json.loads(said)
    assert found["phases"]["decode"]["passes"] == 2000
    assert found["phases"]["decode"]["padding"] == 2000
    assert (found["pods"], found["seconds"]) == (["a", "b", "c"], 7200)
    assert all('namespace="ns",inferenceservice="demo"' in query for query in prometheus.queries)
    assert "in the last 2 h, by Prometheus" in run("--prometheus", prometheus.url, "--since", "2h")[1]


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ([], "has no graphpod_graph_requested_rows_bucket of ns/demo"),
        ((400, b'{"status":"error","error":"parse error"}'), "answered 400: parse error"),
        ((200, b"<html>"), "is no Prometheus"),
        ((200, b"[]"), "is no Prometheus"),
        ((200, b'{"status":"success","data":{"result":[1]}}'), "is no Prometheus"),
        ((200, b"[" * 100_000), "is no Prometheus"),
        ((200, _vector([{"metric": {"__name__": "x", "pod": ["a"]}, "value": [0, "NaN"]}])), "is missing"),
        ((302, b""), "is no Prometheus"),
    ],
)
def test_what_answers_may_be_anything(
    prometheus: Prometheus, run: Callable[..., Outcome], answer: Any, wrong: str
) -> None:
    prometheus.after = prometheus.before = answer
    code, said, complained = run("--prometheus", prometheus.url)
    assert (code, said) == (2, "")
    assert wrong in complained


def test_more_than_a_prometheus_answers_is_not_read(
    prometheus: Prometheus, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PROMETHEUS_BYTES", 1024)
    prometheus.after = (200, b" " * 10_000)
    assert "answered more than" in run("--prometheus", prometheus.url)[2]
