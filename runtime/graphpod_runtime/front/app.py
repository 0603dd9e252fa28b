"""The front's life: admin port, engine, API port, then one of the ends: asked to, engine dead, stuck, cannot load."""

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop
from starlette.types import ASGIApp

from graphpod_policy import ExitCode
from graphpod_runtime.base.known_model import model_of
from graphpod_runtime.base.process.signals import asks_to_end
from graphpod_runtime.front import drain as draining
from graphpod_runtime.front.access.api_key import ApiKey
from graphpod_runtime.front.access.cors import with_cors
from graphpod_runtime.front.access.root_path import RootPath
from graphpod_runtime.front.access.tls import Certificate
from graphpod_runtime.front.health import admin_app
from graphpod_runtime.front.metrics.exporter import Exporter, FrontMetrics
from graphpod_runtime.front.middleware import ApiMiddleware
from graphpod_runtime.front.options import Checked, ServeOptions
from graphpod_runtime.front.requests.engine_client import ENGINE_COMMAND, EngineClient
from graphpod_runtime.front.requests.request_trace import EngineTraces
from graphpod_runtime.front.requests.sleeping import Sleeping
from graphpod_runtime.front.requests.termination import Ended, Ending, report
from graphpod_runtime.front.server.listen import server
from graphpod_runtime.front.server.server_thread import ServerThread
from graphpod_runtime.front.server_info import ServerInfo
from graphpod_runtime.front.status import Status
from graphpod_runtime.front.tracing.settings import TracingSettings
from graphpod_runtime.front.tracing.traced_app import TracedApp
from graphpod_runtime.front.watchdog import Watchdog
from graphpod_runtime.wire.messages import CounterSnapshot, Event, Heartbeat, Residence, Warmup
from graphpod_runtime.wire.report import State, captured_after
from graphpod_runtime.wire.socket import no_sockets
from graphpod_runtime.wire.wakefulness import awake_seconds

if TYPE_CHECKING:
    from fastapi import FastAPI

    from graphpod_runtime.front.tracing.tracer import Tracer

log = logging.getLogger("graphpod.front")

WATCH_SECONDS = 1.0
GOODBYE_SECONDS = 2.0
"""How long open streams have for their error event, and a drained engine for its exit."""
RANKS_SECONDS = 2.5
"""How much longer the first of several ranks has for its exit: it waits for the others to end (`LEAVE_SECONDS`)."""


def run(options: ServeOptions, checked: Checked, http: socket.socket, admin: socket.socket) -> int:
    """Serves on the two listening sockets; returns the exit code after the termination message was written."""
    status = Status.of(checked.config, checked.config_hash, os.environ.get("POD_UID", ""))
    # Not closed: that would wait for the threads of requests, of which one may take minutes.
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        front = Front(options, status, checked.key, checked.certificate)
    except OSError as error:
        return report(Ending(ExitCode.SettingInvalid, no_sockets(error)), options.termination_log)
    return report(runner.run(front.run(http, admin)), options.termination_log)


CAPTURES = {State.Capturing: ExitCode.CaptureFailed, State.SelfChecking: ExitCode.SelfCheckFailed}


def in_capture(ending: Ending, status: Status) -> Ending:
    """The same end, reported as that of the capture or the self-check it fell into: a crash there is a capture's that
    the process did not survive, and whoever runs it may start a weaker plan.
    """
    code = CAPTURES.get(status.state)
    if not ending.crashed or code is None:
        return ending
    phase = captured_after([stage["name"] for stage in status.report["stages"]])
    doing = f"capturing {phase}" if code is ExitCode.CaptureFailed else "comparing graphs with uncaptured code"
    return Ending(code, f"while {doing}: {ending.message}")


class Front:
    """The parts of one front process, wired."""

    def __init__(
        self,
        options: ServeOptions,
        status: Status,
        key: ApiKey | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self._options = options
        self._status = status
        self._key, self._certificate = key, certificate
        self._metrics = FrontMetrics(status.config.model.name)
        self._exporter = Exporter(self._metrics, status, options.vllm_metric_names)
        self._info = ServerInfo(status, self._exporter)
        self._middleware = ApiMiddleware(status, self._metrics, self._info, key, options.limits)
        self._tracing = TracingSettings.of(options.otlp_endpoint, options.trace_sampling_per_million, os.environ)
        self._traced = TracedApp(self._middleware)
        plan = status.config.resolved()
        self._watchdog = Watchdog(plan, model=model_of(Path(status.config.model.path)))
        self._began = time.monotonic()
        command, awake = options.engine_command or ENGINE_COMMAND, awake_seconds(status.config.features)
        self._engine = EngineClient(self._on_event, command, status.config.features.ranks, awake)
        self._middleware.arriving = self._engine.arriving
        self._exporter.sent = lambda: self._engine.open
        self._sleeping = Sleeping(status, self._engine.send)
        self._asked = asyncio.Event()
        self._stuck: Ending | None = None
        self._hurry: bool | None = None
        """Set by the signal. Ctrl-C: no client needs time to learn that we go."""

    async def run(self, http: socket.socket, admin: socket.socket) -> Ending:
        """From two listening sockets to the end."""
        loop = asyncio.get_running_loop()
        for number in asks_to_end():
            loop.add_signal_handler(number, self._on_signal, number)
        self._sleeping.serve(loop)
        app = admin_app(self._status, self._watchdog, self._exporter, self._sleeping, self._key)
        probes = ServerThread("probes", app, admin)
        probes.start()
        self._http = server(self._door(), self._certificate, self._options.limits)
        self._serving = asyncio.create_task(self._http.serve([http]))
        try:
            return await self._first_end()
        finally:
            self._engine.kill()
            self._http.should_exit = True
            await asyncio.gather(asyncio.wait((self._serving,), timeout=GOODBYE_SECONDS), probes.stop(GOODBYE_SECONDS))
            self._serving.cancel()
            if self._traced.tracer is not None:
                self._traced.tracer.queue.shutdown()  # on the loop, which serves nothing more: all threads may be taken
            await asyncio.wait((self._serving,), timeout=GOODBYE_SECONDS)
            self._engine.close()

    def _door(self) -> ASGIApp:
        """What the API port calls: the layers that are switched on, around the middleware."""
        door: ASGIApp = self._middleware if self._tracing is None else self._traced
        if self._options.cors_origins:
            door = with_cors(door, self._options.cors_origins)
        return door if self._options.root_path is None else RootPath(door, self._options.root_path)

    async def _first_end(self) -> Ending:
        """Runs everything that can end the process; the first that does says how."""
        self._status.engine_alive = True
        ends: list[Coroutine[Any, Any, Ending]] = [self._run_engine(), self._leave_when_asked(), self._watch()]
        tasks = [asyncio.create_task(end) for end in ends]
        loading = asyncio.create_task(self._load_api())
        pending = {*tasks, loading}
        try:
            while True:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    ending = task.result()
                    if ending is not None:
                        return ending
        except Ended as ended:
            return ended.ending
        finally:
            for task in (*tasks, loading):
                task.cancel()

    async def _run_engine(self) -> Ending:
        ending = await self._engine.run(self._options.config)
        self._status.engine_alive = False
        return self._stuck or in_capture(ending, self._status)

    async def _load_api(self) -> None:
        if self._tracing is not None:
            self._traced.tracer = await asyncio.to_thread(self._make_tracer, self._tracing)
            self._engine.watch = EngineTraces()
        self._middleware.app = await asyncio.to_thread(self._make_api)
        # What was imported and made lives as long as the process: the collector need not hold the loop for it again.
        gc.collect()
        gc.freeze()
        self._status.loaded()
        self._say_ready()

    def _make_tracer(self, settings: TracingSettings) -> "Tracer":
        """Imports OpenTelemetry, off the loop that answers probes."""
        from graphpod_runtime.front.tracing.tracer import Tracer

        self._metrics.tracing()
        return Tracer(settings, self._status, self._metrics.spans)

    def _make_api(self) -> "FastAPI":
        """Imports what is slow to import, off the loop that answers probes."""
        from graphpod_runtime.front.anthropic import routes as anthropic
        from graphpod_runtime.front.openai.api import openai_app
        from graphpod_runtime.front.openai.parse import Parser
        from graphpod_runtime.front.openai.sampling.sampling_defaults import DefaultsInvalid, SamplingDefaults
        from graphpod_runtime.front.openai.service import Service
        from graphpod_runtime.front.openai.structured.check import GrammarCheck
        from graphpod_runtime.front.openapi.route import ENDPOINT, add_document
        from graphpod_runtime.front.text.tokenizer import Tokenizer, TokenizerInvalid
        from graphpod_runtime.grammar.vocabulary import GrammarsUnavailable

        try:
            folder = Path(self._status.config.model.path)
            tokenizer, defaults = Tokenizer(folder), SamplingDefaults.read(folder, self._options.sampling_defaults)
        except (TokenizerInvalid, DefaultsInvalid) as error:
            raise Ended(ExitCode.ModelInvalid, str(error)) from error
        grammars = GrammarCheck(folder)
        try:
            grammars.compiler.prepare()
        except GrammarsUnavailable as error:
            log.warning("requests with a grammar are refused: %s", error)
        service = Service.of(self._status, self._engine, tokenizer, self._metrics, defaults, grammars)
        parser = Parser()
        app = openai_app(service, parser, lambda api: self._info.endpoints((*api, *anthropic.ENDPOINTS, ENDPOINT)))
        anthropic.add_routes(app, service, parser)
        add_document(
            app, service.model, self._info.version, self._info.paths, key=self._options.api_key_file is not None
        )
        return app

    async def _leave_when_asked(self) -> Ending:
        await self._asked.wait()
        if not self._status.started:
            self._status.draining = True
            took = time.monotonic() - self._began
            what = f"stopped before Ready, at {self._status.state} {took:.0f} s after the start"
            return Ending(ExitCode.Drained, what, early=True)
        seconds = self._options.accept_seconds
        if seconds is None:
            seconds = 0.0 if self._hurry else draining.ACCEPT_SECONDS
        left = await draining.drain(self._status, self._engine, self._http, self._serving, seconds)
        self._engine.drain(left)
        goodbye = GOODBYE_SECONDS + (RANKS_SECONDS if self._status.config.features.ranks > 1 else 0.0)
        await asyncio.sleep(left + goodbye)  # the engine's own exit ends this wait
        return Ending(ExitCode.Drained, "drained; the engine was ended by force")

    async def _watch(self) -> Ending:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._watchdog.turned()
            if self._watchdog.stuck() is None:
                continue
            # Had this process itself been stopped, the beats of that time are read only now.
            await asyncio.sleep(WATCH_SECONDS)
            stuck = self._watchdog.stuck()
            if stuck is not None:
                if self._watchdog.mute() is not None:
                    self._stuck = Ending(ExitCode.RankStuck, stuck)
                else:
                    self._stuck = Ending(ExitCode.Stuck, f"{stuck}; the engine's stacks are in the log above")
                self._engine.fail_all(self._stuck.line)
                self._engine.kill(signal.SIGABRT)  # its stacks go to the log, its exit ends this wait
                await asyncio.sleep(GOODBYE_SECONDS)
                return self._stuck

    def _on_signal(self, number: signal.Signals) -> None:
        # A terminal that closes may send SIGHUP more than once, and SIGTERM with it: that hurries nothing.
        if number is not signal.SIGHUP:
            if self._hurry is not None:
                log.warning("a second signal, %s: %d open requests are cut", number.name, self._engine.open)
                self._engine.kill()
                os._exit(ExitCode.Drained)
            self._hurry = number is signal.SIGINT
        self._asked.set()

    def _on_event(self, event: Event) -> None:
        match event:
            case Warmup():
                self._status.update(event.report)
                self._say_ready()
            case CounterSnapshot():
                self._exporter.update(event.values)
            case Heartbeat():
                self._watchdog.heard(event)
            case Residence():
                self._sleeping.heard(event)

    def _say_ready(self) -> None:
        if self._status.ready:
            log.info("ready: %s", self._status.config.model.name)
