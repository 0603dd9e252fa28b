"""Readings: only the right pod's count, terminal ones are kept, and the wire is bounded."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe import admin_port
from graphpod_operator.observe import warmup_poller as observe_warmups
from graphpod_operator.observe.admin_port import MAX_BYTES, HttpAdminPort
from graphpod_operator.observe.warmup_poller import CONCURRENCY, Unreachable, Warmups
from graphpod_operator.observe.warmup_report import NoReading, Reading, State
from graphpod_operator.telemetry.label_values import Missing
from tests.unit.operator.objects import pod, report


class Port:
    """Admin ports by script: a report, or an error."""

    def __init__(self, *answers: dict[str, Any] | str) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def warmup(self, pod: Pod) -> bytes:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            raise Unreachable(answer)
        return json.dumps(answer).encode()


ONE = Pod.of(pod())
UID = ONE.uid


async def test_a_terminal_reading_is_asked_for_once() -> None:
    port = Port(report(state="Capturing"), report())
    warmups = Warmups(port)
    assert not (await warmups.read([ONE]))[UID].terminal  # type: ignore[union-attr]
    for _ in range(3):
        found = (await warmups.read([ONE]))[UID]
        assert isinstance(found, Reading)
        assert found.terminal
    assert port.asked == 2


async def test_a_restarted_container_is_asked_again() -> None:
    port = Port(report(), report(state="Loading"))
    warmups = Warmups(port)
    await warmups.read([ONE])
    again = (await warmups.read([Pod.of(pod(container="containerd://2"))]))[UID]
    assert isinstance(again, Reading)
    assert not again.terminal


async def test_a_resync_confirms_a_terminal_reading_and_keeps_it_if_the_pod_is_silent() -> None:
    port = Port(report(), "silent")
    warmups = Warmups(port)
    await warmups.read([ONE])
    assert isinstance((await warmups.read([ONE], again=True))[UID], Reading)
    assert port.asked == 2


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    port = Port(report())
    warmups = Warmups(port)
    await warmups.read([ONE])
    warmups.forget(UID)
    await warmups.read([ONE])
    assert port.asked == 2


async def test_a_pod_that_is_slow_to_answer_holds_up_nobody_and_is_told_of_when_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observe_warmups, "PATIENCE", 0.0)
    answer, told, reads = asyncio.Event(), asyncio.Event(), 0

    class Slow:
        async def warmup(self, pod: Pod) -> bytes:
            nonlocal reads
            reads += 1
            await answer.wait()
            return json.dumps(report()).encode()

    warmups = Warmups(Slow(), lambda key: told.set())
    assert await warmups.read([ONE]) == {}
    assert await warmups.read([ONE]) == {}
    answer.set()
    await told.wait()
    found = (await warmups.read([ONE]))[UID]
    assert isinstance(found, Reading)
    assert reads == 1


async def test_an_unexpected_error_is_raised_once_and_the_pod_is_read_again() -> None:
    class Faulty(Port):
        async def warmup(self, pod: Pod) -> bytes:
            if self.asked == 0:
                self.asked += 1
                raise KeyError("a fault of ours")
            return await super().warmup(pod)

    warmups = Warmups(Faulty(report()))
    with pytest.raises(KeyError):
        await warmups.read([ONE])
    assert isinstance((await warmups.read([ONE]))[UID], Reading)


async def test_an_answer_of_the_last_container_is_not_that_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe_warmups, "PATIENCE", 0.0)
    late = asyncio.Event()

    class Restarting:
        async def warmup(self, pod: Pod) -> bytes:
            if pod.container == ONE.container:
                await late.wait()
                return json.dumps(report()).encode()
            return json.dumps(report(state="Loading")).encode()

    warmups, restarted = Warmups(Restarting()), Pod.of(pod(container="containerd://2"))
    assert await warmups.read([ONE]) == {}
    await warmups.read([restarted])
    late.set()
    found = (await warmups.read([restarted]))[UID]
    assert isinstance(found, Reading)
    assert found.state is State.Loading


@pytest.mark.parametrize(
    ("answer", "cause", "words"),
    [
        (report(podUID="x"), Missing.Mismatch, "uid x"),
        (report(config_hash="other"), Missing.Mismatch, "configuration other"),
        ({}, Missing.Mismatch, "podUID"),
        (report(state="Sleeping"), Missing.Mismatch, "state"),
        (report(prefill="Magic"), Missing.Mismatch, "effective"),
        ("no route", Missing.Unreachable, "no route"),
    ],
)
async def test_an_answer_that_does_not_count_says_why(answer: Any, cause: Missing, words: str) -> None:
    warmups = Warmups(Port(answer))
    for misses in (1, 2):
        found = (await warmups.read([ONE]))[UID]
        assert isinstance(found, NoReading)
        assert (found.cause, found.misses) == (cause, misses)
        assert words in found.message


async def test_a_newer_engine_may_say_more() -> None:
    found = (await Warmups(Port(report(news={"a": 1}))).read([ONE]))[UID]
    assert isinstance(found, Reading)


@pytest.mark.parametrize("made", [{"running": False}, {"status": {"podIP": ""}}], ids=["waits", "no address"])
async def test_a_pod_that_does_not_run_is_not_asked(made: dict[str, Any]) -> None:
    port = Port(report())
    assert await Warmups(port).read([Pod.of(pod(**made))]) == {}
    assert port.asked == 0


async def test_reads_run_together_up_to_a_bound() -> None:
    class Slow:
        def __init__(self) -> None:
            self.now = self.most = 0

        async def warmup(self, pod: Pod) -> bytes:
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(5):
                await asyncio.sleep(0)
            self.now -= 1
            raise Unreachable("x")

    port = Slow()
    await Warmups(port).read([Pod.of(pod(f"demo-abc-{number}")) for number in range(100)])
    assert port.most == CONCURRENCY


async def test_pods_that_are_silent_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 13: as many as may be read at a time are silent for ever; another one is heard at once."""
    monkeypatch.setattr(observe_warmups, "PATIENCE", 0.05)
    many = [Pod.of(pod(f"demo-abc-{number}")) for number in range(CONCURRENCY)]
    hold = asyncio.Event()

    class Port:
        async def warmup(self, pod: Pod) -> bytes:
            if pod.name == "other":
                return json.dumps(report("other")).encode()
            if not hold.is_set():
                raise Unreachable("no answer")
            await asyncio.Event().wait()
            raise AssertionError("never")

    warmups = Warmups(Port())
    await warmups.read(many)
    hold.set()
    await warmups.read(many)
    monkeypatch.setattr(observe_warmups, "PATIENCE", 60.0)
    other = Pod.of(pod("other"))
    assert isinstance((await warmups.read([other]))[other.uid], Reading)


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Ask = Callable[[Answer], Awaitable[bytes]]


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """Reads the warm-up of a pod whose admin port answers by a handler."""
    servers: list[TestServer] = []

    async def ask(answer: Answer) -> bytes:
        app = web.Application()
        app.router.add_get("/ns/demo-abc-1/warmup", answer)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        async with aiohttp.ClientSession() as session:
            url = str(server.make_url("/")).rstrip("/") + "/{namespace}/{name}"
            return await HttpAdminPort(session, url).warmup(ONE)

    yield ask
    for server in servers:
        await server.close()


async def test_a_report_is_read_whole(ask: Ask) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * MAX_BYTES)

    assert len(await ask(answer)) == MAX_BYTES


async def test_a_redirect_is_not_followed(ask: Ask) -> None:
    async def answer(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:1/elsewhere")

    with pytest.raises(Unreachable, match=f"answered 302; for the cause: kubectl -n {ONE.namespace} logs {ONE.name}$"):
        await ask(answer)


async def test_an_answer_without_end_is_cut(ask: Ask) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x" * 4096)
        return response

    with pytest.raises(Unreachable, match="more than 65536 bytes"):
        await ask(answer)


async def test_an_answer_that_does_not_come_is_given_up(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_port, "TIMEOUT", 0.05)
    released = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    with pytest.raises(Unreachable, match="no answer within"):
        await ask(answer)
    released.set()


async def test_a_port_nobody_listens_on_is_unreachable() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(Unreachable, match="Connection refused"):
            await HttpAdminPort(session, "http://127.0.0.1:9").warmup(ONE)
