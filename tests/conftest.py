"""What every level shares: its cluster, a namespace for each test, the one way to wait; and no test that skips."""

import functools
import gc
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from testbed.cluster import Cluster
from tests.audit import Trail
from tests.collector import set_aside
from tests.eventually import Eventually
from tests.places import Place, PodSecurity
from tests.processor import SPENT, spent_here, told
from tests.units import turn_of
from tests.workers import pytest_addoption, pytest_runtestloop  # noqa: F401 - hooks

TESTS = Path(__file__).parent
IN_PROCESS = ("unit", "contracts")
LEVELS = ("monitoring", "api", "sim", "e2e", "gpu")
STARTED_WITH = os.getpriority(os.PRIO_PROCESS, 0)
"""The niceness of the whole run."""
POLITE = 5
"""How much nicer tests in a process are beside levels with clusters. Those mostly wait, what they wait for has a clock,
and the longest of them decides when the run ends.
"""
BEGAN = pytest.StashKey[float]()
FIGURES = "figure: "
"""Begins the name of a property (pytest's `record_property`) that is shown at the end of the run."""

if find_spec("hypothesis"):  # a machine with a GPU has what the engine needs, and no more
    import hypothesis

    # Hypothesis would otherwise choose another profile where it believes to be in CI. The gate tries the same values in
    # every run, so that a commit which passed passes again; `make search` looks for others.
    hypothesis.settings.register_profile("gate", deadline=None, print_blob=True, derandomize=True)
    hypothesis.settings.register_profile("search", deadline=None, print_blob=True, max_examples=1000)
    hypothesis.settings.load_profile(os.environ.get("GRAPHPOD_VALUES", "gate"))

if shutil.which("g++"):
    # What inductor compiles in one test, another test or the next run finds.
    os.environ.setdefault("CXX", str(TESTS / "kept_objects" / "g++"))

if find_spec("httpcore2"):
    import httpcore2

    # Each client would read the machine's certificates, 20 to 100 ms of computing; most clients of tests never use TLS.
    httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)

if find_spec("httpx2"):
    import httpx2
    from httpx2._config import DEFAULT_TIMEOUT_CONFIG

    # Its own five seconds pass on a machine that does much else. Calls have this object as their default.
    vars(DEFAULT_TIMEOUT_CONFIG).update(httpx2.Timeout(60.0).as_dict())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test's folder is its level. The quick levels run first; with several workers, what takes longest."""
    level = {item: item.path.relative_to(TESTS).parts[0] for item in items}
    for item in items:
        if level[item] in LEVELS:
            item.add_marker(level[item])
    if config.option.numprocesses:
        items.sort(key=lambda item: turn_of(item.path.relative_to(TESTS).as_posix()))
    else:
        order = (*IN_PROCESS, *LEVELS)
        items.sort(key=lambda item: order.index(level[item]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """No collector walks what is being collected, nor what was."""
    gc.disable()
    result = yield
    set_aside()
    gc.enable()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Processor seconds begin."""
    if item.config.option.numprocesses:
        _be_nicer(POLITE if item.path.relative_to(TESTS).parts[0] in IN_PROCESS else 0)
    item.stash[BEGAN] = spent_here()
    return (yield)


def _be_nicer(by: int) -> None:
    """Of this thread, and of all that it starts. Only root may go back, as whom clusters are started."""
    niceness = min(STARTED_WITH + by, 19)
    if os.getpriority(os.PRIO_PROCESS, 0) != niceness:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A skip is a failure: what is missing has to be installed, or the test left out by its mark."""
    report: pytest.TestReport = yield  # type: ignore[misc]
    if report.when == "teardown":
        report.user_properties.append((SPENT, spent_here() - item.stash[BEGAN]))
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which counts as a failure here: {report.longrepr}"
    return report  # type: ignore[return-value]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same for a whole module."""
    report: pytest.CollectReport = yield  # type: ignore[misc]
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, which counts as a failure here: {report.longrepr}"
    return report  # type: ignore[return-value]


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Requests that should not have been made, one on a line."""
    if isinstance(left, Trail) and op == "==":
        return [f"{len(left)} requests where {right!r} were expected:", *left.told().splitlines()]
    return None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests measured and, with `make test`, the dearest files and the time since its first step."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name.startswith(FIGURES):
                terminalreporter.write_line(f"{name.removeprefix(FIGURES)}: {value}")
    if started := os.environ.get("GRAPHPOD_STARTED"):
        properties = ((one.nodeid, *each) for one in terminalreporter.getreports("") for each in one.user_properties)
        for line in told((test, value) for test, name, value in properties if name == SPENT):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"whole run, from the first step of make: {time.time() - float(started):.0f} s")


@pytest.fixture
def eventually(request: pytest.FixtureRequest) -> Eventually:
    """Waits for what a cluster or a process does in its own time, and shows why it did not."""
    names = [name for name in request.fixturenames if name.endswith("cluster")]

    def used() -> list[Cluster]:
        found = [request.getfixturevalue(name) for name in names]
        return list({one.name: one for one in found if isinstance(one, Cluster)}.values())

    return Eventually(used)


@pytest.fixture
def make_place(eventually: Eventually) -> Iterator[Callable[..., Place]]:
    """`make_place(cluster)`: a fresh namespace, `restricted` unless told otherwise; without services after the test."""
    made: list[Place] = []

    def make(cluster: Cluster, security: PodSecurity = PodSecurity.Restricted) -> Place:
        place = Place(cluster, f"t-{uuid.uuid4().hex[:8]}")
        place.create(security)
        made.append(place)
        eventually.places.append((cluster, place.namespace))
        return place

    yield make
    for place in made:
        place.empty()
