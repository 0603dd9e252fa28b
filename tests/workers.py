"""`-n 5`: tests are collected once, and five forks of the process that has them share out its units (`units.py`).

To collect all tests takes as much computing as to run a thousand of them, most of it imports. A fork has them already.
A fork asks for a unit whenever it has none, and sends what pytest reports of its tests to the first process, where
pytest counts and prints it as if the tests had run there.
"""

import os
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import pytest

from tests.processor import SPENT, spent_here
from tests.units import CLUSTERS, on_clusters, units_of

WORKER = "GRAPHPOD_TEST_WORKER"
"""Environment variable of a worker: its number."""
ENDED = "ended"
"""A worker's last word; the others are names of pytest's hooks, and NEXT."""
NEXT = "next"


def pytest_addoption(parser: pytest.Parser) -> None:
    """As pytest-xdist calls it, whose short name pytest keeps for plugins of its own house."""
    parser.getgroup("workers")._addoption(
        "-n", "--numprocesses", type=int, default=0, help="processes that share out the tests; 0: no others"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Where `-n` asks for workers, they run the tests."""
    count = session.config.option.numprocesses
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    Shared(session).run(count)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def worker() -> str:
    """This process's number among the workers of its run; "" in a run without."""
    return os.environ.get(WORKER, "")


class Shared:
    """The units that wait, and the workers that have the others."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._units = deque(units_of([item.nodeid for item in session.items]))
        self._working: dict[Connection, Worker] = {}

    def _next(self) -> list[int]:
        """The unit whose turn it is: one that only computes while `CLUSTERS` of the others work."""
        items = self._session.items

        def clustered(unit: Iterable[int]) -> bool:
            return any(on_clusters(items[index].nodeid) for index in unit)

        full = sum(clustered(one.unit) for one in self._working.values()) >= CLUSTERS
        unit = next((one for one in self._units if not (full and clustered(one))), None)
        if unit is None:
            return self._units.popleft() if self._units else []
        self._units.remove(unit)
        return unit

    def run(self, count: int) -> None:
        """Until no unit waits and no worker is left."""
        session = self._session
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # workers have folders in it
        reporter.showfspath = False  # files take turns
        for number in range(min(count, len(self._units))):
            self._start(number, [])
        try:
            while self._working:
                for connection in wait(list(self._working)):
                    self._hear(self._working[connection])  # type: ignore[index]
        finally:
            for one in list(self._working.values()):
                one.connection.close()  # it ends with its next word
                one.wait()

    def _start(self, number: int, unit: list[int]) -> None:
        one = Worker(self._session, number, unit, others=list(self._working))
        self._working[one.connection] = one

    def _hear(self, one: "Worker") -> None:
        """One word of it, or that it is gone."""
        session, hook = self._session, self._session.config.hook
        try:
            word, told = one.connection.recv()
        except (EOFError, OSError):  # the latter where it ended in the middle of a word
            self._died(one)
            return
        if word == NEXT:
            going_on = self._units and not (session.shouldfail or session.shouldstop)
            one.give(self._next() if going_on else [])
        elif word == "pytest_runtest_logreport" or word == ENDED:
            report = hook.pytest_report_from_serializable(config=session.config, data=told)
            hook.pytest_runtest_logreport(report=report)
            if session.shouldfail or session.shouldstop:
                for each in self._working.values():
                    each.stop()
        elif word == "pytest_warning_recorded":
            hook.pytest_warning_recorded.call_historic(
                kwargs=told | {"warning_message": as_warning(*told["warning_message"])}
            )
        else:
            if word == "pytest_runtest_logfinish":
                one.unit.popleft()
            getattr(hook, word)(**told)
        if word == ENDED:
            del self._working[one.connection]
            one.wait()

    def _died(self, one: "Worker") -> None:
        """Its test fails; another worker goes on after it."""
        del self._working[one.connection]
        status = one.wait()
        index = one.unit.popleft() if one.unit else None
        item = self._session.items[index] if index is not None else None
        why = (
            f"worker {one.number} ended with {status} in this test" if item else f"worker {one.number} ended: {status}"
        )
        nodeid, location = (item.nodeid, item.location) if item else (f"worker {one.number}", ("tests", None, ""))
        self._session.config.hook.pytest_runtest_logreport(
            report=pytest.TestReport(nodeid, location, {}, "failed", why, "call")
        )
        if not (self._session.shouldfail or self._session.shouldstop):
            self._start(one.number, list(one.unit))


def _make_thread_pool() -> None:
    """That of torch, if it is imported. A fork makes its own at the first need of one, and torch has no lock there: two
    threads with the same need find none ("Invalid thread pool!"), or wait for each other for ever.
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(torch.get_num_threads())


class Worker:
    """A fork, as the first process sees it. `unit`: what it has not finished, as indices."""

    def __init__(self, session: pytest.Session, number: int, unit: list[int], others: list[Connection]) -> None:
        if threading.active_count() != 1:
            raise pytest.UsageError(f"a fork keeps only its own thread: {threading.enumerate()} began in an import")
        self.number, self.unit = number, deque(unit)
        self.connection, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if not self._pid:
            for mine in (*others, self.connection):
                mine.close()  # or the first process's end would not be seen
            _Fork(session, number, unit, theirs).work()
        theirs.close()

    def give(self, unit: list[int]) -> None:
        """Where this is empty, it ends."""
        self.unit = deque(unit)
        self._send(unit)

    def stop(self) -> None:
        """After the test that it runs."""
        self._send([])

    def _send(self, unit: list[int]) -> None:
        with suppress(ConnectionError):  # what became of it comes next
            self.connection.send(unit)

    def wait(self) -> int:
        """The exit code, of a worker that ends; negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


class _Fork:
    """A worker, in its own process."""

    def __init__(self, session: pytest.Session, number: int, unit: list[int], orders: Connection) -> None:
        self._session = session
        self._number = number
        self._unit = unit
        self._orders = orders

    def work(self) -> NoReturn:
        """All that is given to it."""
        config, wrong = self._session.config, None
        _make_thread_pool()
        try:
            os.environ[WORKER] = str(self._number)
            own = config._tmp_path_factory.getbasetemp() / f"worker{self._number}"  # type: ignore[attr-defined]
            own.mkdir(mode=0o700, exist_ok=True)
            config._tmp_path_factory._basetemp = own  # type: ignore[attr-defined]
            _own_streams(config)
            config.pluginmanager.register(Relay(config, self._orders))
            for item in self._items():
                # What comes next has only the session in common with it, unless it is of the same unit.
                config.hook.pytest_runtest_protocol(item=item, nextitem=self._next or self._session)
                if self._session.shouldfail or self._session.shouldstop:
                    break
        except BaseException:  # noqa: BLE001 - it is reported
            wrong = traceback.format_exc()
        before = spent_here()
        try:
            self._session._setupstate.teardown_exact(None)
        except BaseException:  # noqa: BLE001
            wrong = f"{wrong or ''}{traceback.format_exc()}"
        report = pytest.TestReport(
            f"worker {self._number}", ("tests", None, ""), {}, "failed" if wrong else "passed", wrong, "teardown"
        )
        report.user_properties.append((SPENT, spent_here() - before))
        with suppress(OSError):  # nobody is there who would know
            self._orders.send((ENDED, config.hook.pytest_report_to_serializable(config=config, report=report)))
        os._exit(0)

    def _items(self) -> Iterator[pytest.Item]:
        """The tests that it is given, one after the other; `_next` follows in the same unit."""
        items, unit = self._session.items, deque(self._unit)
        while True:
            if not unit:
                self._orders.send((NEXT, None))
                unit.extend(self._orders.recv())
            elif self._orders.poll():
                return  # it is to stop
            if not unit:
                return
            item = items[unit.popleft()]
            self._next = items[unit[0]] if unit else None
            yield item


class Relay:
    """Hooks whose calls go to the first process as well."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("pytest_runtest_logreport", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        one = warning_message
        said = str(one.message), one.category.__name__, one.filename, one.lineno
        told = {"warning_message": said, "when": when, "nodeid": nodeid, "location": location}
        self._connection.send(("pytest_warning_recorded", told))


def as_warning(text: str, category: str, file: str, line: int) -> warnings.WarningMessage:
    """A warning of another process, whose class need not be known here."""
    made = type(category, (Warning,), {})
    return warnings.WarningMessage(made(text), made, file, line)


def _own_streams(config: pytest.Config) -> None:
    """What this process's tests print is captured apart from others', and what its reporter prints goes nowhere."""
    capturing: Any = config.pluginmanager.get_plugin("capturemanager")
    capturing.stop_global_capturing()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    capturing.start_global_capturing()
    capturing.suspend_global_capture()
