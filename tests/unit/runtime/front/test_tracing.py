"""Spans of requests at a collector, trace context of clients, and a collector that is no help."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from graphpod_policy import __version__
from graphpod_runtime.front.requests.request_trace import CURRENT, EngineTraces, RequestTrace
from graphpod_runtime.front.tracing.settings import TracingSettings
from graphpod_runtime.front.tracing.span_queue import SpanQueue
from graphpod_runtime.wire.messages import Finished, FinishReason, Phases, Submit, Tokens
from stubs.collector import Collector, Received

from .conftest import Front, start_front
from .test_openai import CHAT, TEXT, say

SPANS = "graphpod_trace_spans_total"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
UPB = "google/_upb"
"""The library that the exporter loads."""
SERVER = 2
"""A span's kind, in OTLP."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, Collector]]:
    with Collector() as collector:
        front = start_front(tmp_path_factory.mktemp("traced"), options={"otlp_endpoint": collector.url})
        yield front, collector
        front.process.terminate()
        assert front.ended() == 0, front.log.read_text()


@pytest.fixture
def pair(started: tuple[Front, Collector]) -> tuple[Front, Collector]:
    """A traced front and its collector, without spans of other tests."""
    front, collector = started
    front.eventually("all came", lambda: front.metric(SPANS, result="exported") == len(collector.every))
    assert front.metric(SPANS, result="failed") == front.metric(SPANS, result="dropped") == 0
    collector.spans.clear()
    return started


def mapped(front: Front) -> str:
    """What is mapped into the process."""
    return Path(f"/proc/{front.process.pid}/maps").read_text()


def ask(front: Front, traceparent: str | None = None, **more: Any) -> httpx2.Response:
    headers = {} if traceparent is None else {"traceparent": traceparent}
    body = {"model": "echo", "prompt": "abcd", "max_tokens": 3, "ignore_eos": True, **more}
    return httpx2.post(front.http + TEXT, json=body, headers=headers, timeout=60)


def arrived(front: Front, collector: Collector, count: int) -> list[Received]:
    """All spans, once there are so many."""
    front.eventually(f"{count} spans", lambda: len(collector.spans) >= count)
    return collector.spans


def test_a_request_is_a_span_of_the_clients_trace_with_its_phases_below_it(pair: tuple[Front, Collector]) -> None:
    front, collector = pair
    began = time.time_ns()
    answer = ask(front, f"00-{TRACE}-{PARENT}-01")
    spans = {span.name: span for span in arrived(front, collector, 4)}
    ended = time.time_ns()
    server = spans[f"POST {TEXT}"]
    assert (server.trace, server.parent, server.kind, server.failed) == (TRACE, PARENT, SERVER, False)
    assert began <= server.began <= server.ended <= ended
    queue, prefill, decode = (spans[name] for name in ("queue", "prefill", "decode"))
    assert {span.parent for span in (queue, prefill, decode)} == {server.id}
    assert {span.trace for span in spans.values()} == {TRACE}
    edges = [server.began, queue.began, queue.ended, prefill.began, prefill.ended, decode.began, decode.ended]
    assert edges == sorted(edges)
    assert (queue.ended, prefill.ended) == (prefill.began, decode.began)
    assert decode.ended <= server.ended
    about = server.attributes
    assert about["graphpod.request.id"] == answer.headers["x-request-id"]
    assert about["gen_ai.response.id"] == answer.json()["id"]
    assert (about["gen_ai.usage.input_tokens"], about["gen_ai.usage.output_tokens"]) == (4, 3)
    assert about["gen_ai.response.finish_reasons"] == ["length"]
    assert about["http.response.status_code"] == 200
    assert prefill.attributes["graphpod.graph.policy"] == "Breakable"
    assert decode.attributes["graphpod.graph.policy"] == "Full"
    assert decode.attributes["gen_ai.usage.output_tokens"] == 3
    assert server.resource["service.name"] == "echo"
    assert server.resource["service.instance.id"] == "uid-1"
    assert server.resource["service.version"] == __version__
    assert UPB in mapped(front)
    text = httpx2.get(front.admin + "/metrics", headers={"accept": "application/openmetrics-text"}).text
    assert f'trace_id="{TRACE}"' in text, "the exemplar names the same trace"


@pytest.mark.parametrize(("path", "route"), [("/openapi.json", "/openapi.json"), ("/v1/models/", "/v1/models")])
def test_a_span_is_named_by_its_route(pair: tuple[Front, Collector], path: str, route: str) -> None:
    front, collector = pair
    assert httpx2.get(front.http + path).status_code == 200
    (span,) = arrived(front, collector, 1)
    assert (span.name, span.attributes["http.route"]) == (f"GET {route}", route)


def test_a_request_without_a_trace_begins_one_that_its_exemplar_names(pair: tuple[Front, Collector]) -> None:
    front, collector = pair
    assert ask(front).status_code == 200
    server = next(span for span in arrived(front, collector, 4) if span.kind == SERVER)
    assert server.parent == ""
    text = httpx2.get(front.admin + "/metrics", headers={"accept": "application/openmetrics-text"}).text
    assert f'trace_id="{server.trace}"' in text


def test_clients_decide_whether_they_are_traced_and_the_ratio_decides_for_the_others(
    own_front: Callable[..., Front],
) -> None:
    with Collector() as collector:
        front = own_front(options={"otlp_endpoint": collector.url, "trace_sampling_per_million": 0})
        for _ in range(3):
            ask(front)
        ask(front, f"00-{TRACE}-{PARENT}-00")
        ask(front, f"00-{TRACE}-{PARENT}-01")
        assert {span.trace for span in arrived(front, collector, 4)} == {TRACE}
        assert len(collector.named(f"POST {TEXT}")) == 1


def test_an_answer_that_fails_or_is_refused_has_a_span_that_says_so(pair: tuple[Front, Collector]) -> None:
    front, collector = pair
    front.post(TEXT, {"model": "other", "prompt": "a"})
    httpx2.get(front.http + "/v1/nothing/" + "x" * 500)
    httpx2.get(front.http + "/health")
    spans = arrived(front, collector, 2)
    assert [(span.name, span.attributes["http.response.status_code"], span.attributes["error.type"])
            for span in spans] == [(f"POST {TEXT}", 404, "model_not_found"), ("GET", 404, "unknown_url")]  # fmt: skip
    assert len(spans[1].attributes["url.path"]) <= 200
    assert not any(span.failed for span in spans), "the client is wrong, not the server"


def test_every_choice_has_its_phases_and_a_stop_string_ends_one(pair: tuple[Front, Collector]) -> None:
    front, collector = pair
    ask(front, prompt=["abcd", "xyzw"], max_tokens=4, stop="c")
    arrived(front, collector, 7)
    decodes = collector.named("decode")
    assert [span.attributes["graphpod.choice"] for span in decodes] == [0, 1]
    (server,) = collector.named(f"POST {TEXT}")
    assert sorted(server.attributes["gen_ai.response.finish_reasons"]) == ["length", "stop"]


def test_a_stream_ends_its_span_with_its_last_event_also_when_the_client_goes(pair: tuple[Front, Collector]) -> None:
    front, collector = pair
    with httpx2.stream("POST", front.http + CHAT, json=say("x" * 2000, stream=True, ignore_eos=True)) as stream:
        next(stream.iter_lines())
    (server,) = [span for span in arrived(front, collector, 4) if span.kind == SERVER]
    assert server.attributes["gen_ai.response.finish_reasons"] == ["abort"]
    (decode,) = collector.named("decode")
    assert "graphpod.passes.graph" not in decode.attributes, "the engine did not end it"


@pytest.mark.parametrize("how", ["refuses", "is away", "does not answer"])
def test_a_collector_that_takes_no_spans_slows_no_request_and_is_counted(
    own_front: Callable[..., Front], how: str
) -> None:
    late = threading.Event() if how == "does not answer" else None
    with Collector(status=400, late=late) as collector:
        endpoint = "http://127.0.0.1:9" if how == "is away" else collector.url
        front = own_front(options={"otlp_endpoint": endpoint}, environment={"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "1"})
        for _ in range(5):
            assert ask(front).status_code == 200
        front.eventually("they are counted", lambda: front.metric(SPANS, result="failed") >= 20)
        assert front.metric(SPANS, result="exported") == 0
        front.eventually("it is told", lambda: "takes no spans" in front.log.read_text())  # after they are counted
        assert front.log.read_text().count("takes no spans") == 1
        assert ask(front).status_code == 200
        front.process.terminate()
        assert front.ended() == 0


def test_without_a_collector_nothing_of_opentelemetry_is_imported_and_no_series_exists(front: Front) -> None:
    assert SPANS + "{" not in front.get("/metrics").text
    assert UPB not in mapped(front)


def test_no_traceparent_breaks_a_request(pair: tuple[Front, Collector]) -> None:
    """A header that is none begins a trace of its own; nothing of it is passed on."""
    front, collector = pair
    drawn = random.Random(7)
    whole = f"00-{TRACE}-{PARENT}-01"
    bad = [
        "", "00", whole[:-1], whole + "-", whole.upper(), f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{PARENT}-0g", "x" * 8000, whole * 3, "00-é-é-01",
        *("".join(drawn.choice(whole + "gZ-, ;=") for _ in range(drawn.randrange(60))).strip() for _ in range(40)),
    ]  # fmt: skip
    for header in bad:
        with httpx2.Client() as client:
            headers = [(b"traceparent", header.encode("latin-1")), (b"tracestate", b"a=" + b"\xff" * 300)]
            assert client.get(front.http + "/v1/models", headers=headers).status_code == 200
    spans = arrived(front, collector, len(bad))
    assert len({span.trace for span in spans}) == len(bad)
    assert TRACE not in {span.trace for span in spans}


@pytest.mark.parametrize(
    ("endpoint", "environment", "sent"),
    [
        (None, {}, None),
        ("http://c:4318", {}, TracingSettings("http://c:4318/v1/traces", 5)),
        ("https://c/o/", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other"}, TracingSettings("https://c/o/v1/traces", 5)),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, TracingSettings(None, 5)),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, TracingSettings(None, 5)),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, None),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "TRUE"}, None),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, None),
    ],
)  # fmt: skip
def test_the_command_line_or_opentelemetrys_variables_name_the_collector(
    endpoint: str | None, environment: dict[str, str], sent: TracingSettings | None
) -> None:
    assert TracingSettings.of(endpoint, 5, environment) == sent


class Holding:
    """An exporter that waits."""

    def __init__(self) -> None:
        self.go, self.began = threading.Event(), threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        self.began.set()
        self.go.wait(60)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing."""


def test_spans_that_do_not_fit_the_queue_are_dropped_and_counted() -> None:
    counted: dict[str, int] = {}

    def count(result: str, spans: int) -> None:
        counted[result] = counted.get(result, 0) + spans

    holding = Holding()
    queue = SpanQueue(holding, count, most=3, gather=0.001)  # type: ignore[arg-type]
    span: Any = object()
    queue.on_end(span)
    assert holding.began.wait(60)
    for _ in range(5):
        queue.on_end(span)
    assert counted == {"dropped": 2}
    holding.go.set()
    queue.shutdown(60)
    assert counted == {"dropped": 2, "exported": 4}


def test_full_messages_follow_each_other_without_a_wait() -> None:
    """Many spans leave as fast as the collector takes them; the rest waits for more."""
    counted, all_full = list[int](), threading.Event()

    def count(result: str, spans: int) -> None:
        assert result == "exported"
        counted.append(spans)
        if sum(counted) == 12:
            all_full.set()

    taking = Holding()
    taking.go.set()
    queue = SpanQueue(taking, count, gather=3600, batch=4)  # type: ignore[arg-type]
    span: Any = object()
    for _ in range(14):
        queue.on_end(span)
    assert all_full.wait(60)
    assert counted == [4, 4, 4]
    queue.shutdown(60)
    assert counted == [4, 4, 4, 2]


def test_what_goes_on_after_the_answer_is_not_part_of_its_trace() -> None:
    traces, submit = EngineTraces(lambda: 9.0), Submit("r0", [1, 2], 3)
    assert traces.submitted(submit) is submit, "no trace"

    async def request() -> RequestTrace:
        trace = RequestTrace()
        CURRENT.set(trace)
        assert traces.submitted(submit).traced
        traces.came(Tokens("r0", [5], phases=Phases(1.0, 2.0, 3.0, 1, 0), cached=1))
        traces.came(Tokens("unknown", [5]))
        traces.came(Finished("r0", FinishReason.Stop, decoded=(2, 1)))
        trace.over = True
        assert traces.submitted(submit) is submit
        return trace

    (choice,) = asyncio.run(request()).choices
    assert (choice.tokens, choice.cached, choice.decoded, choice.ended) == (2, 1, (2, 1), 9.0)
