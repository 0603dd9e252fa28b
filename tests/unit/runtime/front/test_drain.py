"""The end that was asked for, step by step, without a process."""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn

from graphpod_policy.http_limits import HttpLimits
from graphpod_runtime.front.drain import drain
from graphpod_runtime.front.metrics.exporter import Exporter, FrontMetrics
from graphpod_runtime.front.middleware import ApiMiddleware
from graphpod_runtime.front.requests.engine_client import EngineClient
from graphpod_runtime.front.server_info import ServerInfo
from graphpod_runtime.front.status import Status
from graphpod_runtime.wire.messages import Abort, Command, Heartbeat, Submit
from graphpod_runtime.wire.report import State
from graphpod_runtime.wire.socket import WIRE, EngineEnd

from .conftest import ServingConfig, engine_json, first_status


def gate_of(status: Status) -> ApiMiddleware:
    metrics = FrontMetrics("echo")
    return ApiMiddleware(status, metrics, ServerInfo(status, Exporter(metrics, status)), None, HttpLimits())


async def asked(gate: ApiMiddleware) -> list[dict[str, Any]]:
    """What the gate answers to a request that no application behind it could."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def receive() -> Any:
        raise AssertionError("a refusal reads no body")

    await gate({"type": "http", "path": "/v1/models", "method": "GET", "headers": []}, receive, send)
    return sent


async def heard(engine: EngineEnd, count: int) -> list[Command]:
    """The first commands that the engine gets."""
    commands: list[Command] = []
    while len(commands) < count:
        commands += engine.poll(0.01)
        await asyncio.sleep(0)
    return commands


@pytest.fixture
def status(tmp_path: Path) -> Status:
    """Of a front that serves; nothing is left to finish after a drain's first second."""
    config = engine_json(tmp_path, tmp_path, serving=ServingConfig(max_queue=4, drain_seconds=0))
    found = first_status(config)
    found.started = found.engine_alive = True
    return found


def test_only_a_start_that_has_ended_is_ready(status: Status) -> None:
    status.started = False
    status.loaded()
    for state in State:
        status.update(status.report | {"state": state.value})
        assert status.ready == (state is State.Ready)
        status.started = False


def test_after_the_time_to_accept_the_gate_answers_draining_and_open_requests_are_aborted(status: Status) -> None:
    async def run() -> None:
        engine, gate = EngineClient(lambda event: None), gate_of(status)
        engine_end = EngineEnd(Path(engine._folder.name), WIRE)
        engine_end.send([Heartbeat(0.0, "Ready")])
        assert engine._wire.line, "the engine's end is not connected"
        server, closed = SimpleNamespace(should_exit=False), asyncio.Event()
        serving: asyncio.Task[Any] = asyncio.create_task(closed.wait())
        with engine.submit([partial(Submit, prompt=[1], max_tokens=5)] * 2) as stream:
            draining = asyncio.create_task(drain(status, engine, cast(uvicorn.Server, server), serving, 0.0))
            ended = await asyncio.wait_for(stream.next(), 30)
            start, body = await asked(gate)
            assert (start["status"], b'"draining"' in body["body"]) == (503, True)
            assert (b"retry-after", b"1") in start["headers"]
            assert server.should_exit
            assert [one.finished.id for _, one in sorted(ended.items()) if one.finished] == ["r0", "r1"]
            closed.set()
            await draining
        assert (await asyncio.wait_for(heard(engine_end, 4), 30))[2:] == [Abort("r0"), Abort("r1")]
        engine_end.close()
        engine.close()

    asyncio.run(run())
