"""Every query of every dashboard returns data from a real Prometheus that scrapes a real engine and operator."""

import json
import os
import re
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from monitoring.boards import BOARDS, fleet
from monitoring.boards.asking import Series, answer, marked
from monitoring.boards.picture import data, draw
from monitoring.boards.row import Board, Panel, Query
from monitoring.rules import RECORDINGS, objectives
from tests.monitoring import dcgm
from tests.monitoring.conftest import Watched
from tests.monitoring.engine import CLIENTS, OF_RANKS, ROUNDS

pytestmark = pytest.mark.slow
"""`make monitoring` runs them: Prometheus is built for them, and they take minutes."""
PANELS = [(board, panel) for board in BOARDS for panel in board.panels()]
QUERIES = [(board, panel, query) for board in BOARDS for panel in board.panels() for query in panel.queries]
NAMES = [f"{board.name}-{panel.title}-{query.legend}" for board, panel, query in QUERIES]
NOTES = {fleet.GPU.title: "a fixture with values of another GPU: this pod runs on a CPU"}
LATENCIES = {alert.name for alert in objectives.ALERTS if re.search("TTFT|ITL", alert.name)}
"""Alerts whose defaults are for a GPU: a busy CPU misses first tokens within 1 s and gaps of 50 ms."""
LONG_WINDOWS = ("30m", "1h", "6h", "3d")


def latest(watched: Watched, board: str, panel: str, query: int = 0) -> list[Series]:
    """What one query of a panel shows, with the whole time in its rates."""
    (found,) = [one for one in BOARDS if one.name == board]
    (shown,) = [one for one in found.panels() if one.title == panel]
    whole = replace(watched.span, scrape=watched.span.length)  # a rate over four of these
    return answer(watched.prometheus.url, found, shown, shown.queries[query], whole)


def exposed(watched: Watched, name: str, **labels: str) -> float:
    """The sum of an engine's series that have these labels, as its own /metrics has them now."""
    with urllib.request.urlopen(f"http://{watched.engine.admin}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    parsed = [found for line in lines if (found := re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line))]
    wanted = {f'{label}="{value}"' for label, value in labels.items()}
    return sum(float(found[2]) for found in parsed if wanted <= set((found[1] or "").split(",")))


@pytest.mark.parametrize(("board", "panel", "query"), QUERIES, ids=NAMES)
def test_a_query_returns_data(board: Board, panel: Panel, query: Query, watched: Watched) -> None:
    found = answer(watched.prometheus.url, board, panel, query, watched.span)
    assert (found == []) == ((board.name, panel.title) in OF_RANKS)


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=[f"{board.name}-{panel.title}" for board, panel in PANELS])
def test_a_panel_that_is_empty_before_any_request_says_why(board: Board, panel: Panel, watched: Watched) -> None:
    shown = [answer(watched.prometheus.url, board, panel, query, watched.quiet) for query in panel.queries]
    assert all(shown) or panel.quiet.startswith("Empty")


def test_the_share_of_padding_is_that_of_the_engines_own_counters(watched: Watched) -> None:
    shown = {one.labels["phase"]: one.latest for one in latest(watched, "graphs", "Share of padding")}
    assert shown.keys() == {"prefill", "decode"}
    for phase, share in shown.items():
        padding = exposed(watched, "graphpod_graph_tokens_total", phase=phase, kind="padding")
        assert share == pytest.approx(padding / exposed(watched, "graphpod_graph_tokens_total", phase=phase))


def test_first_tokens_within_the_objective_are_those_of_the_engines_own_histogram(watched: Watched) -> None:
    (shown,) = latest(watched, "serving", "Share within the objective")
    good = exposed(watched, "graphpod_time_to_first_token_seconds_bucket", le="1.0")
    assert exposed(watched, "graphpod_time_to_first_token_seconds_count") == watched.load.answers
    assert shown.latest == pytest.approx(good / watched.load.answers)


def test_the_answers_for_a_prompt_are_those_that_the_load_asked_for(watched: Watched) -> None:
    """Each client sends a plain prompt and one with a schema a round; every second of the latter wants two answers."""
    (shown,) = latest(watched, "requests", "Answers for a prompt")
    assert watched.load.answers == 5 * ROUNDS * CLIENTS / 2
    assert shown.latest == pytest.approx(watched.load.answers / (2 * ROUNDS * CLIENTS))


def test_starts_of_pods_are_marked_where_they_are_within_the_time_shown(watched: Watched) -> None:
    board = next(one for one in BOARDS if one.name == "serving")
    started = exposed(watched, "process_start_time_seconds")
    assert marked(watched.prometheus.url, board, watched.span) == []
    since = replace(watched.span, length=watched.span.end - started + 60)
    start, ready = marked(watched.prometheus.url, board, since)
    assert start == (pytest.approx(started), "start of demo/smollm2-1")
    assert ready == (pytest.approx(exposed(watched, "graphpod_ready_timestamp_seconds")), "demo/smollm2-1 is Ready")
    assert start < ready < (watched.span.end, "")


def test_the_services_of_the_operators_board_are_those_of_the_cluster(watched: Watched) -> None:
    shown = latest(watched, "operator", "Services, by phase")
    now = max(one.points[-1][0] for one in shown)  # the series of a status that no service has any more ends earlier
    assert sum(one.latest for one in shown if one.points[-1][0] == now) == 2


def test_the_seconds_of_a_start_are_those_that_the_engine_reports(watched: Watched) -> None:
    with urllib.request.urlopen(f"http://{watched.engine.admin}/warmup", timeout=10) as reply:
        stages = {stage["name"]: stage["seconds"] for stage in json.load(reply)["stages"]}
    (shown,) = latest(watched, "warmup", "Time of the latest start")
    assert shown.latest == pytest.approx(sum(stages.values()))
    graphs = {"Compile", "PrefillCapture", "DecodeMeasure", "DecodeCapture", "SelfCheck"}
    (share,) = latest(watched, "warmup", "Graphs' share of a start")
    assert share.latest == pytest.approx(sum(stages.get(name, 0) for name in graphs) / sum(stages.values()))


def test_the_bytes_of_the_largest_size_are_most_of_its_pool(watched: Watched) -> None:
    """Sizes share a pool and are captured largest first."""
    shown = latest(watched, "warmup", "Memory that a size added: the largest 8 of each phase")
    pool = {(one.labels["phase"], int(one.labels["size"])): one.latest for one in shown if one.labels["kind"] == "pool"}
    largest = max(size for phase, size in pool if phase == "prefill")
    assert pool["prefill", largest] == max(pool.values())


def test_the_share_of_graphs_is_that_of_the_memory_which_the_fixture_has_in_use(watched: Watched) -> None:
    in_use = float(re.findall(r"^DCGM_FI_DEV_FB_USED{.*} (\S+)", dcgm.FIXTURE.read_text(), re.MULTILINE)[0])
    (shown,) = latest(watched, "fleet", "Graphs' share of GPU memory")
    assert shown.latest == pytest.approx(exposed(watched, "graphpod_graph_memory_bytes") / (in_use * 2**20))


def test_the_pods_of_the_fleet_are_counted_by_their_state(watched: Watched) -> None:
    shown = latest(watched, "fleet", "Pods, by state")
    assert [(one.labels["inferenceservice"], one.labels["state"], one.latest) for one in shown] == [
        ("smollm2", "Ready", 1)
    ]


def test_the_rules_are_evaluated_and_no_alert_but_those_of_latency_fires_in_a_healthy_system(watched: Watched) -> None:
    rules = [rule for group in watched.prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    firing = {rule["name"] for rule in rules if rule.get("state") == "firing"}
    assert firing <= LATENCIES


@pytest.mark.parametrize("name", [row.name for row in RECORDINGS if not row.name.endswith(LONG_WINDOWS)])
def test_a_recorded_series_has_values(name: str, watched: Watched) -> None:
    assert watched.prometheus.get(f"query?query={name}")["result"] != []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_picture_of_every_board_is_drawn(board: Board, watched: Watched, tmp_path: Path) -> None:
    shown = data(watched.prometheus.url, board, watched.span)
    folder = Path(os.environ.get("GRAPHPOD_BOARDS") or tmp_path)
    file = draw(board, shown, watched.span, folder / f"{board.name}.png", NOTES)
    assert file.read_bytes().startswith(b"\x89PNG")
