"""A stub of the engine's process: `python3 -m stubs.engine serve --config engine.json`, as the real one is started.

It takes the engine's command line, environment, mounts, ports, probes, termination message and exit codes, so that it
stands in for the engine's image on a real node. It loads nothing and answers every request by an echo. What goes wrong
is asked for in GRAPHPOD_STUB_FAULT (the table in fault.py); a start takes GRAPHPOD_STUB_SECONDS.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from stubs.engine.answer import JSON, warmup
from stubs.engine.fault import CHOICES, FORMS, FaultError, written
from stubs.engine.sleeping import PATHS, POD_UID, Sleeping
from stubs.engine.start import CONFIG_INVALID, SETTING_INVALID, tell
from stubs.engine.start_settings import ENVIRONMENT, StartSettings
from stubs.engine.story import End, Story

PLAIN = {"Content-Type": "text/plain; charset=utf-8"}
METRICS = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
EVENTS = {"Content-Type": "text/event-stream"}
TERMINATION_LOG = Path("/dev/termination-log")
TICK = 0.05  # s between two looks at the clock
MEMORY_STEP = 16 << 20


class Engine:
    """One run: the story, and how far it has got. Safe from any thread."""

    def __init__(self, config: bytes, settings: StartSettings, pod_uid: str) -> None:
        self.story: Story = tell(config, settings.fault, settings.warmup_seconds(pod_uid))
        self.config_hash = hashlib.sha256(config).hexdigest()[:10]
        self.model = _model_name(config)
        self.pod_uid = pod_uid
        self.sleeping = Sleeping(config)
        self.draining = False
        self._drain = settings.drain
        self.scraped_at: float | None = None
        self._began = time.monotonic()
        self._asked = threading.Event()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def started(self) -> bool:
        return self.story.started(self.now)

    @property
    def ready(self) -> bool:
        return not (self.draining or self.sleeping.away) and self.story.ready(self.now)

    def ask_to_end(self) -> None:
        """SIGTERM: not ready any more, serving for a while."""
        self.draining = True
        self._asked.set()

    def run(self) -> End | None:
        """Until it ends by itself, or is asked to (None)."""
        while True:
            end = self.story.end
            left = max(0.0, end.at - self.now) if end is not None else 3600.0
            if self._asked.wait(left):
                if self.started:
                    time.sleep(self._drain)
                return None
            if end is not None:
                return end

    def metrics(self) -> str:
        scene = self.story.scene(self.now)
        lines = [f'graphpod_build_info{{version="stub",torch="none",backend="{self.story.backend}"}} 1']
        lines += [f'graphpod_warmup_state{{state="{scene.state}"}} 1']
        for name, phase in scene.phases.items():
            labels = f'phase="{name}",policy="{phase.effective}",backend="{self.story.backend}"'
            lines.append(f"graphpod_graph_sizes_planned{{{labels}}} {phase.sizes}")
            lines.append(f"graphpod_graphs{{{labels}}} {len(phase.captures)}")
        return "\n".join(lines) + "\n"


def _model_name(config: bytes) -> str:
    try:
        return str(json.loads(config)["model"]["name"])
    except (ValueError, KeyError, TypeError):
        return "unknown"  # the story says what is wrong with it


class Handler(BaseHTTPRequestHandler):
    """Answers by `routes`; quiet, because a probe a second is no news."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        """Sends a response, of plain text unless `headers` say otherwise."""
        self.send_response(status)
        for name, value in {**PLAIN, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        if self.engine.draining:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, status: int, body: Any) -> None:
        self.answer(status, json.dumps(body).encode(), **JSON)


class Admin(Handler):
    """GET /livez /startupz /readyz /warmup /metrics; POST /sleep /wake /reload."""

    def do_GET(self) -> None:
        engine = self.engine
        while engine.story.silent(engine.now) or (engine.story.mute and self.path == "/warmup"):
            time.sleep(TICK)
        waiting = f"warm-up: {engine.story.scene(engine.now).state}\n".encode()
        match self.path:
            case "/livez":
                self.answer(200, b"ok\n")
            case "/startupz":
                self.answer(200, b"ok\n") if engine.started else self.answer(503, waiting)
            case "/readyz":
                asleep = f"{engine.sleeping.said['state']}\n".encode() if engine.sleeping.away else waiting
                not_ready = b"draining\n" if engine.draining else asleep
                self.answer(200, b"ok\n") if engine.ready else self.answer(503, not_ready)
            case "/warmup":
                found = warmup(
                    *(engine.story, engine.now, engine.pod_uid, engine.config_hash, engine.scraped_at),
                    engine.sleeping.said,
                )
                self.answer(found.status, found.body, **found.headers)
            case "/metrics":
                if "X-Prometheus-Scrape-Timeout-Seconds" in self.headers:
                    engine.scraped_at = engine.now
                self.answer(200, engine.metrics().encode(), **METRICS)
            case _:
                self.answer(404, b"Not Found")

    def do_POST(self) -> None:
        engine = self.engine
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path.partition("?")[0] not in PATHS:
            return self.answer(404, b"Not Found")
        if (meant := self.headers.get(POD_UID, engine.pod_uid)) != engine.pod_uid:
            return self.answer(
                421, f"this is the pod of uid {engine.pod_uid}, not {meant!r}: nothing was done\n".encode()
            )
        if not engine.started or engine.draining:
            state = engine.story.scene(engine.now).state
            words = f"the engine does not serve (warm-up: {state}); try again later\n"
            return self.answer(503, words.encode(), **{"Retry-After": "1"})
        found = engine.sleeping.answer(self.path)
        return self.answer(found.status, found.body, **found.headers)


class OpenAi(Handler):
    """GET /v1/models, POST /v1/completions and /v1/chat/completions: the prompt's first max_tokens words come back."""

    def do_GET(self) -> None:
        model = {"id": self.engine.model, "object": "model", "created": 0, "owned_by": "graphpod"}
        if self._refused():
            pass
        elif self.path == "/v1/models":
            self.answer_json(200, {"object": "list", "data": [model]})
        else:
            self._error(404, f"there is no {self.path}", "not_found")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self._refused():
            return None
        try:
            asked = json.loads(body)
            chat = {"/v1/completions": False, "/v1/chat/completions": True}[self.path]
            prompt = asked["messages"][-1]["content"] if chat else asked["prompt"]
            words = str(prompt).split()[: asked.get("max_tokens") or 16]
        except KeyError as error:
            return self._error(400, f"{self.path}: {error} is missing or unknown", "invalid_request")
        except (ValueError, TypeError, IndexError) as error:
            return self._error(400, f"{self.path}: {error}", "invalid_request")
        if asked.get("stream"):
            return self._stream(chat, words)
        return self.answer_json(200, self._completion(chat, " ".join(words), "stop", len(words)))

    def _completion(self, chat: bool, text: str, reason: str | None, tokens: int | None) -> dict[str, Any]:
        whole = tokens is not None
        content: dict[str, Any] = {"text": text}
        if chat:
            content = {"message" if whole else "delta": {"role": "assistant", "content": text}}
        kind = ("chat.completion" if chat else "text_completion") + ("" if whole or not chat else ".chunk")
        answer: dict[str, Any] = {"id": "stub-0", "object": kind, "created": 0, "model": self.engine.model}
        answer["choices"] = [{"index": 0, **content, "logprobs": None, "finish_reason": reason}]
        if whole:
            answer["usage"] = {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": 2 * (tokens or 0)}
        return answer

    def _stream(self, chat: bool, words: list[str]) -> None:
        events = [self._completion(chat, f"{word} ", None, None) for word in words]
        events.append(self._completion(chat, "", "stop", None))
        lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
        self.answer(200, "".join(lines).encode(), **EVENTS)

    def _refused(self) -> bool:
        if self.engine.started and self.engine.sleeping.away:
            self._error(503, "The weights are not on the device (Asleep); send the request later.", "asleep")
            return True
        if self.engine.started:
            return False
        state = self.engine.story.scene(self.engine.now).state
        self._error(503, f"The model is not ready yet (warm-up: {state}); send the request again.", "not_ready")
        return True

    def _error(self, status: int, message: str, code: str) -> None:
        self.answer_json(status, {"error": {"message": message, "type": "stub", "param": None, "code": code}})


def listen(host: str, port: int, handler: type[Handler], engine: Engine) -> ThreadingHTTPServer:
    """A server that answers in the background."""
    bound = type(handler.__name__, (handler,), {"engine": engine})
    server = ThreadingHTTPServer((host, port), bound)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": TICK}, daemon=True).start()
    return server


def close(end: End, termination_log: Path | None) -> int:
    """Writes the termination message; the exit code. An engine that the kernel kills does not return."""
    if end.code == 137:
        exhaust_memory()
    print(end.line, file=sys.stderr, flush=True)
    path = termination_log or (TERMINATION_LOG if TERMINATION_LOG.exists() else None)
    if path is not None:
        path.write_text(end.line)
    return end.code


def exhaust_memory() -> None:
    """Takes memory until the container's limit makes the kernel end it; without a limit it ends itself alike."""
    limits = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    words = [Path(path).read_text().strip() for path in limits if Path(path).exists()]
    if any(word.isdigit() and int(word) < 8 << 30 for word in words):
        taken = []
        while True:
            taken.append(b"x" * MEMORY_STEP)
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes are the engine's."""
    options = _parser().parse_args(arguments)
    try:
        settings = StartSettings.of(os.environ, ENVIRONMENT)
        config = options.config.read_bytes()
    except FaultError as error:
        return close(End(0.0, SETTING_INVALID, str(error)), options.termination_log)
    except OSError as error:
        return close(End(0.0, CONFIG_INVALID, str(error)), options.termination_log)
    engine = Engine(config, settings, os.environ.get("POD_UID", ""))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: engine.ask_to_end())
    http = listen(options.host, options.http_port, OpenAi, engine)
    admin = listen(options.host, options.admin_port, Admin, engine)
    print(f"listening: http {http.server_port}, admin {admin.server_port}", file=sys.stderr, flush=True)
    end = engine.run()
    return close(end, options.termination_log) if end is not None else 0


def _parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {written(kind)}\n      {form.does}" for kind, form in FORMS.items())
    words = "\n".join(f"  <{name}>: {', '.join(choices)}" for name, choices in CHOICES.items() if len(choices) > 1)
    parser = argparse.ArgumentParser(
        prog="stubs.engine",
        description=f"{__doc__}\nfaults, several separated by commas:\n{faults}\n{words}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument("--admin-port", type=int, default=8001)
    parser.add_argument("--termination-log", type=Path, metavar="FILE")
    return parser
