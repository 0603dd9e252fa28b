"""kopf on a thread of its own: what it sees, when it may look, errors that end it, and its own end."""

import asyncio
import gc
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphpod_operator.handlers import settings
from graphpod_operator.handlers.kopf_operator import Liveness, Serving, operate
from graphpod_operator.kube.cluster import Unavailable
from graphpod_operator.manager import kopf_thread
from graphpod_operator.manager.dual_stack import listen
from graphpod_operator.manager.kopf_thread import KopfThread
from graphpod_operator.watch import service_watch
from graphpod_operator.watch.service_watch import ServiceWatch
from tests.ports import free_port
from tests.unit.operator.handlers.apiserver import ApiServer
from tests.unit.operator.objects import inference_service


class Seeing:
    """The main loop's side: what came there, and on which thread."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.seen: list[tuple[str, ...]] = []
        self.threads: set[int] = set()
        self.served: list[bool] = []
        """Answers to whether the kind is served; the last stays. Empty: an error."""
        self.trouble: str | None = None
        informer: Any = SimpleNamespace(
            changed=partial(self.note, "changed"),
            deleted=partial(self.note, "deleted"),
            since=lambda kind, namespace: 5,
        )
        listed, failed = partial(self.note, "listed"), partial(self.note, "failed")
        self.watch = ServiceWatch(informer, (), listed, failed, self._served)
        self.liveness = Liveness(host, free_port())
        operating = partial(operate, Serving(liveness=self.liveness), ())
        self.kopf = KopfThread(operating, self.watch, lambda: self.trouble)

    def note(self, what: str, *_: Any) -> None:
        self.seen.append((what, *(raw["metadata"]["name"] for raw in _[1:])))
        self.threads.add(threading.get_ident())

    async def _served(self) -> bool:
        if not self.served:
            raise Unavailable(0, "away")
        return self.served.pop(0) if len(self.served) > 1 else self.served[0]

    def probe(self) -> int:
        """The status of the liveness probe; 0 while nothing listens. Meanwhile this thread, and so the main loop, does
        nothing else.
        """
        try:
            with urllib.request.urlopen(self.liveness.url, timeout=60) as response:
                status: int = response.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0
        return status


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """asyncio logs an error that no task retrieved when it is collected: in the test that left it, not in a later one.
    kopf scans two APIs and retrieves the first error only.
    """
    yield
    gc.collect()


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    monkeypatch.setattr(kopf_thread, "PAUSES", (0.01,))
    monkeypatch.setattr(settings, "BACKOFFS", (0.01,))
    monkeypatch.setattr(service_watch, "SERVED_SECONDS", 0.01)
    async with ApiServer().serving() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        yield server


@pytest.fixture
async def seeing(server: ApiServer) -> AsyncIterator[Seeing]:
    seeing = Seeing()
    seeing.served = [True]
    seeing.kopf.start()
    yield seeing
    await seeing.kopf.leave()
    assert seeing.kopf.ended.done()
    assert seeing.kopf.ended.exception() is None


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110  another thread brings it about
            await asyncio.sleep(0.01)


async def test_what_kopf_sees_comes_to_the_main_loop_in_its_order(seeing: Seeing, server: ApiServer) -> None:
    seeing.watch.begin()
    for event in ("ADDED", "MODIFIED", "DELETED"):
        server.events.put_nowait({"type": event, "object": inference_service("one")})
    await until(lambda: len(seeing.seen) == 3)
    assert [what for what, *_ in seeing.seen] == ["changed", "changed", "deleted"]
    assert seeing.threads == {threading.get_ident()}


async def test_the_first_watch_goes_on_from_our_list_and_reports_no_service_twice(
    seeing: Seeing, server: ApiServer
) -> None:
    """One that the API server does not remember the version of lists by itself."""
    server.items = [inference_service("known")]
    seeing.watch.begin()
    server.events.put_nowait({"type": "MODIFIED", "object": inference_service("known")})
    await until(lambda: seeing.seen)
    assert (server.since, seeing.seen) == (["5"], [("changed", "known")])
    server.events.put_nowait({"type": "ERROR", "object": {"code": 410}})
    await until(lambda: len(server.since) == 2)
    await until(lambda: len(seeing.seen) == 3)
    assert (server.since, seeing.seen[1:]) == (["5", "7"], [("listed",), ("changed", "known")])


async def test_nothing_is_asked_before_the_store_is_filled_and_the_probe_answers_meanwhile(
    seeing: Seeing, server: ApiServer
) -> None:
    await until(lambda: seeing.probe() == 200)
    assert server.asked == []
    seeing.served.insert(0, False)
    seeing.watch.begin()
    await until(server.lists)


async def test_the_kind_is_not_looked_for_before_it_is_served(seeing: Seeing, server: ApiServer) -> None:
    seeing.served = []
    seeing.watch.begin()
    await until(lambda: seeing.probe() == 200)
    assert server.asked == []
    seeing.served = [False, True]
    await until(server.lists)


@pytest.mark.parametrize("server_says", ["ERROR", "refused"])
async def test_an_error_that_ends_kopf_ends_a_run_of_it_only(
    seeing: Seeing, server: ApiServer, server_says: str
) -> None:
    """And what was deleted meanwhile is looked for, though nothing may be left to list."""
    seeing.watch.begin()
    await until(lambda: server.asked and server.asked[-1].endswith("watch"))
    if server_says == "refused":
        server.refuses = 403
        server.events.put_nowait({"type": "ERROR", "object": {"code": 410}})  # kopf lists again, and is refused
        await until(lambda: ("failed",) in seeing.seen)
        server.refuses = None
    else:
        server.events.put_nowait({"type": "ERROR", "object": {"code": 500}})
    await until(lambda: ("failed",) in seeing.seen and seeing.seen[-1] == ("listed",))
    server.items = [inference_service("two")]
    await until(lambda: server.asked[-1].endswith("watch"))
    server.events.put_nowait({"type": "ADDED", "object": inference_service("two")})
    await until(lambda: seeing.seen[-1][0] == "changed")
    assert seeing.probe() == 200


async def test_credentials_that_are_refused_are_not_offered_again_at_once(
    seeing: Seeing, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kopf_thread, "PAUSES", (3600.0,))
    server.refuses = 401
    seeing.watch.begin()
    await until(lambda: ("failed",) in seeing.seen)
    assert 1 <= len(server.asked) <= 4


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_the_probe_asks_for_a_restart_where_it_helps(
    server: ApiServer, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At once: kopf tries a probe that failed with any other error again before it answers. A pod has an address of
    either family. The log has the reason in a line, and a traceback only for a fault.
    """
    seeing = Seeing(host)
    seeing.trouble = "the event loop is 12 s late"
    seeing.kopf.start()
    await until(lambda: seeing.probe() == 500)
    await seeing.kopf.leave()
    assert seeing.trouble in caplog.text
    assert not [record for record in caplog.records if record.exc_info]


async def test_kopf_is_cancelled_once_and_has_the_time_to_end_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_thread, "GRACE_SECONDS", 0.01)
    began, cancelled, ended = (threading.Event() for _ in range(3))

    async def slow(*_: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.sleep(0.2)
            ended.set()
            raise

    seeing = Seeing()
    thread = KopfThread(slow, seeing.watch, lambda: None)
    thread.start()
    await until(began.is_set)
    thread.stop()
    await until(cancelled.is_set)
    await thread.leave()
    assert ended.is_set()


async def test_tasks_that_kopf_leaves_behind_have_the_time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """kopf cancels its tasks as it ends, and does not wait for them once it is cancelled itself."""
    monkeypatch.setattr(kopf_thread, "GRACE_SECONDS", 0.01)
    began, ended = threading.Event(), threading.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            ended.set()

    async def leaving(*_: Any) -> None:
        task = asyncio.create_task(slow())
        await asyncio.sleep(0)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            task.cancel()

    seeing = Seeing()
    thread = KopfThread(leaving, seeing.watch, lambda: None)
    thread.start()
    await until(began.is_set)
    await thread.leave()
    assert ended.is_set()
    assert thread.ended.exception() is None


async def test_what_no_run_of_kopf_survives_ends_the_thread_and_is_told() -> None:
    async def broken(*_: Any) -> None:
        raise SystemExit(3)

    seeing = Seeing()
    thread = KopfThread(broken, seeing.watch, lambda: None)
    thread.start()
    await until(thread.ended.done)
    assert isinstance(thread.ended.exception(), SystemExit)


def test_a_port_of_the_probe_that_is_taken_ends_the_start() -> None:
    with listen(0) as taken, pytest.raises(OSError, match="cannot listen on 127"):
        Serving(liveness=Liveness("127.0.0.1", taken.getsockname()[1])).check()
