"""`graphpod top --prometheus` against a real Prometheus, whose one pod counts ten replays a second."""

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import pytest

from graphpod_operator.terminal.sources.prometheus import ask
from graphpod_operator.terminal.values.load import Load
from testbed.binaries.golang import binary, build
from tests.eventually import Eventually
from tests.monitoring import prometheus
from tests.monitoring.prometheus import Prometheus, Target
from tests.unit.operator.terminal.expositions import exposition

LABELS = {"namespace": "demo", "inferenceservice": "smollm2", "pod": "smollm2-1"}


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[Prometheus]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            passes = 10 * time.time()
            body = exposition(
                replays={"decode": passes},
                fallbacks={"PaddingGate": passes},
                tokens={"real": 3 * passes, "padding": passes},
                ttft={"0.5": passes, "+Inf": passes},
                waiting=2,
                kv=0.5,
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    build(["prometheus"])
    target = Target("demo/smollm2", f"127.0.0.1:{server.server_address[1]}", LABELS)
    with prometheus.running(binary("prometheus"), tmp_path, (target,)) as running:
        yield running
    server.shutdown()
    server.server_close()


def asked(url: str, namespace: str | None) -> dict[tuple[str, str], Load]:
    async def once() -> dict[tuple[str, str], Load]:
        async with aiohttp.ClientSession() as session:
            return await ask(session, url, namespace)

    return asyncio.run(once())


def test_its_answers_are_what_the_pod_counts(scraped: Prometheus) -> None:
    def counted() -> Load | None:
        found = asked(scraped.url, "demo").get(("demo", "smollm2"))
        return found if found is not None and found.replays and found.replays["decode"] > 0 and found.ttft else None

    found = Eventually()(counted, timeout=30)
    assert found.replays is not None
    assert found.fallbacks is not None
    assert found.replays["decode"] == pytest.approx(found.fallbacks["PaddingGate"], rel=0.05)  # asked moments apart
    assert found.padding == pytest.approx(0.25)
    assert (found.waiting, found.running, found.kv) == (2, 0, 0.5)
    assert found.ttft == pytest.approx(0.475)
    assert asked(scraped.url, "elsewhere") == {}
    assert asked(scraped.url, None).keys() == {("demo", "smollm2")}
