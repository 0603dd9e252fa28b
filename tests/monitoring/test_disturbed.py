"""Boards after what happens to clusters: services of one name or one namespace, a pod that restarts, a service that is
renamed, a Prometheus that restarts, and one that has nothing at all."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from monitoring.boards import BOARDS
from monitoring.boards.asking import Series, Span, answer, marked
from monitoring.boards.picture import data, draw
from monitoring.boards.row import Board, Panel
from testbed.binaries.golang import binary, build
from tests.eventually import Eventually
from tests.monitoring import prometheus
from tests.monitoring.actor import Actor, Load
from tests.monitoring.prometheus import SCRAPE_SECONDS, Prometheus, Target
from tests.ports import free_port
from tests.unit.operator.objects import planned

pytestmark = pytest.mark.slow
SECONDS = 6 * SCRAPE_SECONDS
"""Of each chapter: a rate sees four scrapes."""
PASSES = 40.0
EAGER = {("team", "chat"): 0.0, ("team", "code"): PASSES, ("other", "chat"): PASSES / 4}
"""Decode passes a second without a graph, of each service; all have PASSES on one."""
LOOPBACK = "127.0.0.1"
RENAMED, EARLIER = ("team", "editor"), ("team", "code")


def target(namespace: str, service: str, port: int) -> Target:
    labels = {"namespace": namespace, "inferenceservice": service, "pod": f"{service}-1"}
    return Target(f"{namespace}/{service}", f"{LOOPBACK}:{port}", labels)


@dataclass(frozen=True)
class Seen:
    """A Prometheus that has seen all of it, and that time."""

    prometheus: Prometheus
    span: Span

    def shown(self, board: str, title: str) -> dict[str, Series]:
        """What the first query of a panel shows, by the names of its series."""
        (found,) = [one for one in BOARDS if one.name == board]
        (panel,) = [one for one in found.panels() if one.title == title]
        series = answer(self.prometheus.url, found, panel, panel.queries[0], self.span)
        assert len({one.name for one in series}) == len(series), "two series of one name"
        return {one.name: one for one in series}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    build(["prometheus"])
    (config,) = [one.body["data"]["engine.json"] for one in planned().children if one.resource.kind == "ConfigMap"]
    eventually, folder = Eventually(), tmp_path_factory.mktemp("prometheus")
    ports = {service: free_port() for service in EAGER}

    def started(service: tuple[str, str]) -> Actor:
        load = Load(passes=PASSES, eager=EAGER[service])
        made = Actor(LOOPBACK, config.encode(), "uid", "", load, port=ports[service])
        eventually(lambda: made.ready, timeout=20)
        return made

    actors = {service: started(service) for service in EAGER}
    try:
        began = time.time()
        before = [target(*service, ports[service]) for service in EAGER]
        with prometheus.running(binary("prometheus"), folder, before):
            time.sleep(SECONDS)
            actors[EARLIER].close()
            actors[EARLIER] = started(EARLIER)  # the pod restarts: its counters begin at 0
            time.sleep(SECONDS)
            actors[EARLIER].close()  # and its service gets another name
            time.sleep(2 * SCRAPE_SECONDS)
        actors[EARLIER] = started(EARLIER)
        after = [target(*(RENAMED if one == EARLIER else one), ports[one]) for one in EAGER]
        with prometheus.running(binary("prometheus"), folder, after) as running:
            time.sleep(SECONDS)
            now = time.time()
            yield Seen(running, Span(now, float(round(now - began)), SCRAPE_SECONDS))
    finally:
        for actor in actors.values():
            actor.close()


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_every_query_has_an_answer(board: Board, seen: Seen) -> None:
    """A join that finds two series for one is an error of Prometheus."""
    assert any(data(seen.prometheus.url, board, seen.span).panels.values())


def test_a_pod_that_restarted_has_no_peak_and_nothing_below_zero(seen: Seen) -> None:
    shown = seen.shown("graphs", "Passes, by policy")
    values = [value for one in shown.values() for _, value in one.points]
    assert min(values) == 0
    assert 0 < max(values) < 1.5 * len(EAGER) * PASSES


def test_services_of_one_namespace_and_of_one_name_stay_apart_and_an_earlier_name_has_ended(seen: Seen) -> None:
    shown = seen.shown("graphs", "Share of passes on a graph")
    decode = {name.removesuffix(" decode"): one for name, one in shown.items() if name.endswith(" decode")}
    assert decode.keys() == {"team/chat", "team/code", "other/chat", "team/editor"}
    assert {name: one.ended(seen.span) for name, one in decode.items()} == {
        name: name == "team/code" for name in decode
    }
    shares = {name: one.latest for name, one in decode.items()}
    assert shares == {
        "team/chat": 1,
        "team/code": pytest.approx(0.5, abs=0.1),
        "other/chat": pytest.approx(0.8, abs=0.1),
        "team/editor": pytest.approx(0.5, abs=0.1),
    }


def test_numbers_and_bars_are_those_of_what_is_there_now(seen: Seen) -> None:
    assert seen.shown("fleet", "Pods, by state").keys() == {
        "team/chat Ready",
        "team/editor Ready",
        "other/chat Ready",
    }


def test_a_pod_is_below_the_others_where_its_decode_is(seen: Seen) -> None:
    """Prefill and decode together would hide that."""
    (fleet,) = [board for board in BOARDS if board.name == "fleet"]
    (panel,) = [one for one in fleet.panels() if one.title == "Share of decode passes on a graph"]
    found = answer(seen.prometheus.url, fleet, panel, panel.queries[0], seen.span)
    latest = {(one.labels["namespace"], one.name): one.latest for one in found if not one.ended(seen.span)}
    assert latest["team", "chat-1"] == 1
    assert latest["team", "editor-1"] < latest["other", "chat-1"] < 1


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    build(["prometheus"])
    with prometheus.running(binary("prometheus"), tmp_path_factory.mktemp("empty"), ()) as running:
        yield running


def says_why(panel: Panel) -> bool:
    return panel.why_empty.startswith("Empty")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_board_without_any_data_says_why_in_each_panel(board: Board, empty: Prometheus, tmp_path: Path) -> None:
    span = Span(time.time(), 60, SCRAPE_SECONDS)
    found = data(empty.url, board, span)
    assert [panel.title for panel, series in found.panels.items() if not series and not says_why(panel)] == []
    assert {panel.title for panel, series in found.panels.items() if series} <= {"Objects too large to read"}
    assert marked(empty.url, board, span) == []
    assert draw(board, found, span, tmp_path / "x.png").stat().st_size > 0
