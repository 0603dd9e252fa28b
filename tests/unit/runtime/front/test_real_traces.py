"""Spans of a pod with a model: `graphpod-engine serve` in a fork, a real engine process and its graphs."""

import time
from collections.abc import Iterator

import httpx2
import pytest

from graphpod_policy import ExitCode
from stubs.collector import Collector

from .conftest import Front, launch_fork
from .test_real_engine import write_llama

TRACEPARENT = "00-{}-00f067aa0ba902b7-01"
TOKENS = 20


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, Collector]]:
    """A pod that OpenTelemetry's own variable makes send spans, and their collector."""
    model, folder = tmp_path_factory.mktemp("llama"), tmp_path_factory.mktemp("pod")
    write_llama(model)
    words = ("serve", "--model", str(model), "--name", "tiny", "--host", "127.0.0.1", "--max-model-len", "128")
    ports = ("--http-port", "0", "--admin-port", "0", "--termination-log", str(folder / "termination-log"))
    with Collector() as collector:
        about = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "chosen"}
        front = launch_fork(folder, [*words, *ports, "--max-batch", "2"], **about)
        front.eventually("ready", lambda: "ready: tiny" in front.log.read_text())
        yield front, collector
        front.process.terminate()
        assert front.ended() == ExitCode.Drained, front.log.read_text()


def ask(front: Front, trace: str, **more: object) -> None:
    body = {"model": "tiny", "prompt": "abc " * 5, "max_tokens": TOKENS, "ignore_eos": True, **more}
    headers = {"traceparent": TRACEPARENT.format(trace)}
    assert httpx2.post(front.http + "/v1/completions", json=body, headers=headers, timeout=60).status_code == 200


def test_passes_of_a_request_are_those_that_ran_for_it_on_graphs(traced: tuple[Front, Collector]) -> None:
    front, collector = traced
    trace = "1" * 32
    before, now = front.metric("graphpod_graph_replays_total", phase="decode"), time.time_ns()
    ask(front, trace)
    front.eventually("four spans", lambda: len([span for span in collector.spans if span.trace == trace]) == 4)
    spans = {span.name: span for span in collector.spans if span.trace == trace}
    prefill, decode, server = spans["prefill"], spans["decode"], spans["POST /v1/completions"]
    assert now <= server.began <= spans["queue"].began <= prefill.began <= decode.began <= decode.ended <= server.ended
    assert server.resource["service.name"] == "chosen"
    assert prefill.attributes["graphpod.passes.graph"] == 1
    assert decode.attributes["graphpod.passes.graph"] == TOKENS - 1
    assert decode.attributes["graphpod.passes.eager"] == prefill.attributes["graphpod.passes.eager"] == 0
    assert front.metric("graphpod_graph_replays_total", phase="decode") - before == TOKENS - 1
    assert (prefill.attributes["graphpod.graph.policy"], decode.attributes["graphpod.graph.policy"]) == (
        "Breakable",
        "Full",
    )


def test_a_request_that_waits_shows_it_in_its_queue(traced: tuple[Front, Collector]) -> None:
    front, collector = traced
    trace = "2" * 32
    ask(front, trace, prompt=["x y z " * 3, "a b c " * 3, "d e f " * 3])
    front.eventually("ten spans", lambda: len([span for span in collector.spans if span.trace == trace]) == 10)
    queues, decodes = (
        [span for span in collector.spans if (span.trace, span.name) == (trace, name)] for name in ("queue", "decode")
    )
    last = max(span.ended for span in queues)
    assert sum(span.began < last for span in decodes) >= 1, "two run at a time; the third waits for the end of one"
