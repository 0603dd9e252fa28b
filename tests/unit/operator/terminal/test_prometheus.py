"""Values from a Prometheus, and one that is not there or is something else."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from graphpod_operator.explain.input_error import InputError
from graphpod_operator.terminal.sources import prometheus
from graphpod_operator.terminal.sources.prometheus import ask, loads, queries, without_password
from graphpod_operator.terminal.values.scrape import FALLBACKS, KV, REPLAYS, TTFT_BUCKETS, WAITING


def answer(*results: tuple[dict[str, str], str]) -> bytes:
    of = {"namespace": "team-a", "inferenceservice": "demo"}
    found = [{"metric": {**of, **labels}, "value": [1.5, value]} for labels, value in results]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": found}}).encode()


def test_answers_become_what_a_service_does() -> None:
    results = {
        REPLAYS: answer(({"phase": "decode"}, "7.5")),
        FALLBACKS: answer(({"reason": "PaddingGate"}, "0.5"), ({"reason": "Disabled"}, "NaN")),
        TTFT_BUCKETS: answer(({"le": "0.5"}, "9"), ({"le": "+Inf"}, "10")),
        WAITING: answer(({}, "4")),
        KV: answer(({}, "0.5")),
    }
    found = loads({one: results.get(one.metric, answer()) for one in queries("team-a")})["team-a", "demo"]
    assert found.replays == {"prefill": 0.0, "decode": 7.5}
    assert found.fallbacks == {"PaddingGate": 0.5}
    assert (found.waiting, found.kv, found.running, found.ttft) == (4, 0.5, None, 0.5)


def test_a_namespace_is_quoted_into_the_expression() -> None:
    assert all('{namespace="a\\"b"}' in one.expression for one in queries('a"b'))
    assert not any("{" in one.expression for one in queries(None))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "what answers is no Prometheus"),
        (b'{"status":"error","error":"parse error"}', "the query failed: parse error"),
        (b'{"status":"success","data":{"result":[{"metric":{},"value":[1]}]}}', "no Prometheus"),
        (b"[" * 5000, "no Prometheus"),
    ],
)
def test_what_is_no_answer_of_prometheus_is_an_error(body: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        loads({queries(None)[0]: body})


def test_too_many_series_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "SERIES", 1)
    with pytest.raises(InputError, match="more than 1 series; use -n NAMESPACE"):
        loads({queries(None)[0]: answer(({}, "1"), ({}, "2"))})


Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def start(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> str:
        app = web.Application()
        app.router.add_get("/api/v1/query", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/"

    yield start
    for runner in runners:
        await runner.cleanup()


async def asked(url: str) -> Any:
    async with aiohttp.ClientSession() as session:
        return await ask(session, url, None)


async def test_a_prometheus_is_asked_once_for_each_metric(serve: Serve) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.query["query"])
        return web.Response(body=answer())

    assert await asked(await serve(handler)) == {}
    assert sorted(seen) == sorted(one.expression for one in queries(None))


async def test_an_answer_without_end_is_an_error(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "ANSWER_BYTES", 1000)

    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=b" " * 100_000)

    with pytest.raises(InputError, match="an answer has more than"):
        await asked(await serve(handler))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "no url", "http://user:secret@127.0.0.1:9"])
async def test_a_prometheus_that_is_not_there_is_an_error_without_its_password(url: str) -> None:
    with pytest.raises(InputError, match=r"^--prometheus ") as raised:
        await asked(url)
    assert "check the URL" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_password_is_not_printed() -> None:
    assert without_password("https://me:secret@prom:9090/a@b") == "https://prom:9090/a@b"
