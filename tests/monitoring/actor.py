"""An engine for alerts: the stub's start, the real exporter, and counters that move at set rates.

Its admin port is the engine's own application: names, labels and the report of scrapes are the real ones. The report of
the start comes from the stub's story, and the test moves the counters: so much a second.
"""

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

from graphpod_policy import Backend, EngineConfig, Phase, config_hash
from graphpod_runtime.front.health import admin_app
from graphpod_runtime.front.metrics.exporter import Exporter, FrontMetrics
from graphpod_runtime.front.status import Status
from graphpod_runtime.front.watchdog import Watchdog
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.report import CaptureCost
from stubs.engine.start import tell
from stubs.engine.story import POOL_BYTES, Scene, Story

ADMIN_PORT = 8001
START_SECONDS = 2.0
TTFT = "graphpod_time_to_first_token_seconds"
REQUESTS = "graphpod_requests_total"
PASSED = ("Accept", "X-Prometheus-Scrape-Timeout-Seconds")
"""Headers of a scrape that the application reads."""


@dataclass(frozen=True)
class Load:
    """What an engine does while it is Ready. Rates are a second.

    `passes` are decode passes on a graph, `eager` those that fall back for `reason`. `real` and `padding` are rows of
    the replays. `requests` end by `reasons`: shares that sum to 1. `ttft` and `itl` are seconds of all of them. `masks`
    is the share of the time that goes to masks of grammars. `proposed` and `accepted` are draft tokens, `exported` and
    `lost` spans.
    """

    passes: float = 40.0
    eager: float = 0.0
    reason: str = "SizeAboveLadder"
    real: float = 160.0
    padding: float = 20.0
    requests: float = 4.0
    reasons: Mapping[str, float] = field(default_factory=lambda: {"stop": 1.0})
    ttft: float = 0.2
    itl: float = 0.02
    running: float = 4.0
    waiting: float = 0.0
    kv_usage: float = 0.4
    preemptions: float = 0.0
    nonfinite: float = 0.0
    recaptures: float = 0.0
    masks: float = 0.05
    proposed: float = 40.0
    accepted: float = 20.0
    exported: float = 4.0
    lost: float = 0.0


class Actor:
    """One pod's engine at one address, until `close`. `config` is engine.json, `fault` one of the stub's. `spoiled`:
    what `/metrics` answers in place of its own; empty: nothing, on an open connection.
    """

    def __init__(
        self,
        address: str,
        config: bytes,
        pod_uid: str,
        fault: str,
        load: Load,
        spoiled: bytes | None = None,
        port: int = ADMIN_PORT,
    ) -> None:
        self.load = load
        self.story: Story = tell(config, fault, START_SECONDS)
        self._began = self._last = time.monotonic()
        self._status = Status.of(EngineConfig.parse(config), config_hash(config), pod_uid)
        self._front = FrontMetrics(self._status.config.model.name)
        self._exporter = Exporter(self._front, self._status)
        self._app = admin_app(self._status, Watchdog(self._status.config.resolved()), self._exporter)
        self._counters = Counters()
        self._counters.start_at_zero(Backend(self._status.report["backend"]))
        self._told: set[tuple[str, str]] = set()
        self._owed: dict[str, float] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        actor = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Quiet: a scrape a second is no news."""

            def do_GET(self) -> None:
                if actor._closed.is_set():  # a scraper keeps its connection
                    self.close_connection = True
                    return
                if self.path == "/metrics" and spoiled is not None:
                    if not spoiled:
                        actor._closed.wait()
                    found = httpx2.Response(200, content=spoiled, headers={"Content-Type": "text/plain; version=0.0.4"})
                else:
                    found = actor.answer(self.path, dict(self.headers.items()))
                with suppress(BrokenPipeError, ConnectionResetError):  # a scrape that has given up
                    self.send_response(found.status_code)
                    self.send_header("Content-Type", found.headers["content-type"])
                    self.send_header("Content-Length", str(len(found.content)))
                    self.end_headers()
                    self.wfile.write(found.content)

        self._server = ThreadingHTTPServer((address, port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    @property
    def ready(self) -> bool:
        """What /readyz would say."""
        return self.story.ready(time.monotonic() - self._began)

    def close(self) -> None:
        """The pod is gone."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, headers: Mapping[str, str]) -> httpx2.Response:
        """What the engine's application answers now."""
        with self._lock:
            now = time.monotonic()
            seconds, scene = now - self._last, self.story.scene(now - self._began)
            report = self.story.report(now - self._began, "", "")
            self._status.report = {key: value for key, value in report.items() if key not in WHOSE}
            for name, phase in scene.phases.items():
                report["graph"][name]["costs"] = [
                    CaptureCost(size, took, POOL_BYTES, 0).as_dict() for size, took in phase.captures
                ]
            if path == "/metrics":
                self._last = now
                self._capture(scene)
                if scene.state == "Ready":
                    self._serve(seconds, scene)
                self._exporter.update(self._counters.snapshot())
            return asyncio.run(self._ask(path, headers))

    async def _ask(self, path: str, headers: Mapping[str, str]) -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(self._app), base_url="http://admin") as client:
            return await client.get(path, headers={name: headers[name] for name in PASSED if name in headers})

    def _capture(self, scene: Scene) -> None:
        """Captures and checks of the story, each counted once."""
        backend, add = self.story.backend, self._counters.add
        for decision in scene.decisions:
            phase, rule = decision["phase"], decision["rule"]
            if (phase, rule) in self._told:
                continue
            self._told.add((phase, rule))
            if rule == "SelfCheckFailed":
                labels = {"phase": phase, "policy": scene.phases[phase].planned, "backend": backend}
                add("graphpod_graph_selfchecks_total", result="failed", **labels)
            elif rule in ("CaptureFailed", "CaptureOutOfMemory"):
                add("graphpod_graph_capture_failures_total", phase=phase, backend=backend, reason=rule)

    def _serve(self, seconds: float, scene: Scene) -> None:
        """What `seconds` of the load add."""
        load, add, backend = self.load, self._counters.add, self.story.backend
        phase, policy = Phase.Decode.value, scene.phases[Phase.Decode.value].effective
        whole = dict(self._due(seconds))
        if policy != "Disabled":
            labels = {"phase": phase, "policy": policy, "backend": backend}
            add("graphpod_graph_replays_total", whole["passes"], **labels)
            for kind in ("real", "padding"):
                add("graphpod_graph_tokens_total", whole[kind], phase=phase, kind=kind, backend=backend)
        else:
            add("graphpod_graph_fallbacks_total", whole["passes"], phase=phase, reason=policy, backend=backend)
        add("graphpod_forward_passes_total", whole["passes"], phase=phase, policy=policy)
        add("graphpod_forward_passes_total", whole["eager"], phase=phase, policy="Disabled")
        add("graphpod_graph_fallbacks_total", whole["eager"], phase=phase, reason=load.reason, backend=backend)
        add("graphpod_preemptions_total", whole["preemptions"])
        add("graphpod_nonfinite_logits_total", whole["nonfinite"])
        add("graphpod_graph_recaptures_total", whole["recaptures"], phase=phase, backend=backend)
        self._counters.observe("graphpod_grammar_mask_duration_seconds", load.masks * seconds)
        for kind in ("proposed", "accepted"):
            add(f"graphpod_speculation_{kind}_tokens_total", whole[kind], method="Ngram")
        if rows := int(whole["proposed"]) // DRAFTS:
            lengths = self._counters.observer("graphpod_speculation_accepted_length", method="Ngram")
            lengths(whole["accepted"] / rows, rows)
        self._front.spans("exported", whole["exported"])
        self._front.spans("failed", whole["lost"])
        self._counters.set("graphpod_requests_running", load.running)
        self._counters.set("graphpod_requests_waiting", load.waiting)
        self._counters.set("graphpod_kv_cache_usage_ratio", load.kv_usage)
        model = self._status.config.model.name
        for reason in load.reasons:
            self._front._counters.add(REQUESTS, whole[reason], model_name=model, finish_reason=reason)
        for _ in range(int(whole["requests"])):
            self._front._counters.observe(TTFT, load.ttft, model_name=model)
            self._front.next_tokens(load.itl, 8)

    def _due(self, seconds: float) -> Iterator[tuple[str, float]]:
        """Whole events of each rate; what is less than one is owed to the next scrape."""
        load = self.load
        rates = {name: getattr(load, name) for name in RATES}
        rates |= {reason: load.requests * share for reason, share in load.reasons.items()}
        for name, rate in rates.items():
            due = self._owed.get(name, 0.0) + rate * seconds
            self._owed[name] = due - int(due)
            yield name, int(due)


DRAFTS = 4
"""Draft tokens of a request in one pass."""
WHOSE = ("podUID", "configHash", "scrapes")
"""What the front says of itself, not of its engine."""
RATES = (
    *("passes", "eager", "real", "padding", "requests", "preemptions", "nonfinite", "recaptures"),
    *("proposed", "accepted", "exported", "lost"),
)
