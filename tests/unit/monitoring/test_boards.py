"""The table of dashboards: what it names exists, and Grafana gets whole, read-only boards."""

import json
import re

import pytest

from graphpod_policy.metrics import METRICS
from graphpod_runtime.wire.report import State
from monitoring.boards import BOARDS, grafana
from monitoring.boards.asking import STEPS, Span, called, substituted
from monitoring.boards.row import COLUMNS, LOWEST, Board, Kind, Panel, Query, Tone, Unit, counted
from monitoring.rules import ALERTS, RECORDINGS
from tests.unit.house.pages import ROOT
from tests.unit.house.test_import_law import imported
from tests.unit.monitoring.promql import SERIES, metric, unknown

PANELS = [(board, panel) for board in BOARDS for panel in board.panels()]
MAX_BYTES = 1 << 20
"""Of a ConfigMap."""
ELSEWHERE = {
    "workqueue_work_duration_seconds": "the seconds of controller_runtime_reconcile_time_seconds, for boards of others",
}
"""Metrics that no board and no rule reads, and why."""
SPAN = Span(end=1000.0, length=600.0, scrape=15.0)


def _named(name: str) -> Board:
    return next(board for board in BOARDS if board.name == name)


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda value: getattr(value, "title", None))
def test_a_panel_asks_for_series_and_labels_that_are_exported(board: Board, panel: Panel) -> None:
    for query in panel.queries:
        expr = substituted(query.expr, SPAN.variables(board))
        assert unknown(expr) == set()
        assert SERIES.search(expr)
        assert expr.count("(") == expr.count(")")
        assert "$" not in expr
        assert set(re.findall(r"\[([^\]]*)\]", query.expr)) <= {"$__rate_interval", "$__range"}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_moments_are_marked_by_times_of_series_that_are_exported(board: Board) -> None:
    assert board.marks
    for mark in board.marks:
        expr = substituted(mark.expr, SPAN.variables(board))
        assert unknown(expr) == set()
        assert SERIES.search(expr)
        assert "$" not in expr


def test_grafana_marks_the_values_of_an_annotation_as_milliseconds() -> None:
    made, _ = json.loads(grafana.render(BOARDS[0]))["annotations"]["list"]
    assert made["expr"] == f"1000 * {BOARDS[0].marks[0].expr}"
    assert (made["useValueForTime"], made["titleFormat"]) == (True, "start of {{namespace}}/{{pod}}")
    assert made["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_gap_stays_a_gap_and_a_series_of_zeros_leaves_legend_and_tooltip(board: Board) -> None:
    lines = [panel for panel in json.loads(grafana.render(board))["panels"] if panel["type"] == "timeseries"]
    assert lines
    for panel in lines:
        assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False
        found = [one for one in panel["fieldConfig"]["overrides"] if one["matcher"]["id"] == "byValue"]
        if next(one for one in board.panels() if one.title == panel["title"]).zeros_count:
            assert found == []
            continue
        (zero,) = found
        assert zero["matcher"]["options"]["reducer"] == "allIsZero"
        assert zero["properties"][0]["value"] == {"legend": True, "tooltip": True, "viz": False}


def test_lines_of_one_tone_get_shades_and_an_objective_is_dashed() -> None:
    panels = {panel["title"]: panel for panel in json.loads(grafana.render(_named("serving")))["panels"]}
    ended = panels["Requests, by how they ended"]["fieldConfig"]["overrides"]
    assert {"mode": "shades", "fixedColor": "green"} in [one["properties"][0]["value"] for one in ended]
    first = panels["Time to first token"]["fieldConfig"]["overrides"]
    (dashed,) = [one for one in first if one["properties"][0]["id"] == "custom.lineStyle"]
    assert dashed["properties"][1]["value"] == {"mode": "fixed", "fixedColor": "text"}
    letter = panels["Time to first token"]["targets"][-1]["refId"]
    assert dashed["matcher"] == {"id": "byFrameRefID", "options": letter}


def test_a_state_has_a_word_and_a_colour() -> None:
    (state,) = [one for one in json.loads(grafana.render(BOARDS[0]))["panels"] if one["title"] == "State of each pod"]
    words = state["fieldConfig"]["defaults"]["mappings"][0]["options"]
    assert [words[str(value)]["text"] for value in range(1, 6)] == [state.value for state in State]
    assert len({word["color"] for word in words.values()}) == len(words)


def test_a_count_of_zero_is_called_none() -> None:
    assert counted("sum by (a) (x)", "a") == (
        '(sum by (a) (x)) > 0 or label_replace(sum(sum by (a) (x)) == 0, "a", "none", "", "")'
    )


def test_every_metric_is_on_a_board_or_in_a_rule() -> None:
    shown = [query.expr for _, panel in PANELS for query in panel.queries]
    shown += [mark.expr for board in BOARDS for mark in board.marks]
    ruled = [row.expr for row in (*ALERTS, *RECORDINGS)]
    named = {metric(name) for expr in (*shown, *ruled) for name, _ in SERIES.findall(expr)}
    assert {row.name for row in METRICS} - named == ELSEWHERE.keys()


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda value: getattr(value, "title", None))
def test_a_panel_says_what_it_shows(board: Board, panel: Panel) -> None:
    assert panel.means.endswith(".")
    assert panel.quiet.endswith(".") or not panel.quiet
    assert "Empty" in panel.description, "whoever sees nothing must learn why"
    assert panel.queries


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda value: getattr(value, "title", None))
def test_services_and_pods_of_one_name_in_two_namespaces_stay_apart(board: Board, panel: Panel) -> None:
    for query in panel.queries:
        for labels in re.findall(r"\bby \(([^)]*)\)", query.expr):
            grouped = {label.strip() for label in labels.split(",")}
            assert not grouped & {"inferenceservice", "pod"} or "namespace" in grouped, query.expr
        assert query.legend.count("{{inferenceservice}}") == query.legend.count("{{namespace}}/{{inferenceservice}}")


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda value: getattr(value, "title", None))
def test_grafana_paints_no_value_by_a_threshold_that_the_panel_does_not_name(board: Board, panel: Panel) -> None:
    """Without thresholds Grafana paints every value above 80 red."""
    (made,) = [one for one in json.loads(grafana.render(board))["panels"] if one["title"] == panel.title]
    steps = made["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    named = [*(start for start, _ in panel.steps), *(level.value for level in panel.levels)]
    assert [step["value"] for step in steps if step["value"] is not None] == [
        start for start in named if start != LOWEST
    ]
    if panel.levels:
        assert {step["color"] for step in steps[1:]} == {"text"}
    if panel.kind in (Kind.Number, Kind.Bars):
        assert steps[0]["value"] is None


def test_a_tone_is_that_of_the_name_and_then_that_of_the_value() -> None:
    panel = Panel("", "", Kind.Lines, Unit.Count, (), tones=((".* ok", Tone.Good),), steps=((5, Tone.Bad),))
    assert [panel.tone("a ok", 9), panel.tone("a", 5), panel.tone("a", 4)] == [Tone.Good, Tone.Bad, None]


@pytest.mark.parametrize(
    ("standing", "tone"),
    [
        ("Ready, available=True", Tone.Good),
        ("Degraded, available=True", Tone.Warn),
        ("Starting, available=True", Tone.Plain),
        ("Starting, available=False", Tone.Pale),
        ("Suspended, available=False", Tone.Pale),
        ("none yet, available=Unknown", Tone.Pale),
        ("Stalled, available=True", Tone.Bad),
        ("Refused, available=Unknown", Tone.Bad),
    ],
)
def test_a_rollout_in_which_pods_serve_does_not_look_like_an_outage(standing: str, tone: Tone) -> None:
    (services,) = [panel for _, panel in PANELS if panel.title == "Services, by phase"]
    assert services.tone(standing, 1) == tone


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda value: getattr(value, "title", None))
def test_lines_have_levels_and_numbers_have_steps(board: Board, panel: Panel) -> None:
    """A level is no series and has no colour of one; its word says whether it is a goal or an alert."""
    assert not panel.steps or panel.kind in (Kind.Number, Kind.Bars)
    assert not panel.levels or panel.kind is Kind.Lines
    assert all(tone is not Tone.Line for _, tone in (*panel.tones, *panel.steps))
    if panel.kind is Kind.Lines:
        assert any(level.word.startswith("alert") for level in panel.levels) == ("alert Graphpod" in panel.means)


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda value: getattr(value, "title", None))
def test_quantiles_stand_next_to_the_mean_and_those_of_whole_numbers_are_whole(board: Board, panel: Panel) -> None:
    quantiles = [query.expr for query in panel.queries if "histogram_quantile" in query.expr]
    if quantiles:
        assert any("mean" in query.legend for query in panel.queries)
    for expr in quantiles:
        assert expr.startswith("ceil(") == (panel.unit in (Unit.Tokens, Unit.Number))


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda value: getattr(value, "title", None))
def test_counts_are_whole(board: Board, panel: Panel) -> None:
    """A mean, a rate, or a share is no count."""
    (made,) = [one for one in json.loads(grafana.render(board))["panels"] if one["title"] == panel.title]
    assert made["fieldConfig"]["defaults"].get("decimals") == (0 if panel.unit is Unit.Count else None)
    if panel.unit is Unit.Count:
        assert not any(re.search(r"\brate\(|histogram_quantile|avg|_sum", query.expr) for query in panel.queries)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_panels_fill_the_rows_and_have_different_titles(board: Board) -> None:
    titles = [panel.title for panel in board.panels()]
    assert len(titles) == len(set(titles))
    for section in board.sections:
        assert sum(panel.width for panel in section.panels) % COLUMNS == 0, section.title


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_dashboard_is_whole_and_read_only(board: Board) -> None:
    text = grafana.render(board)
    made = json.loads(text)
    assert len(text.encode()) < MAX_BYTES
    assert (made["uid"], made["editable"]) == (f"graphpod-{board.name}", False)
    assert [one["name"] for one in made["templating"]["list"]] == [
        "datasource",
        *(variable.name for variable in board.variables),
    ]
    assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
    shown = [panel for panel in made["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in shown] == [panel.title for panel in board.panels()]
    for panel in shown:
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert panel["description"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= COLUMNS


def test_the_interval_of_rates_holds_four_scrapes_and_a_step() -> None:
    assert SPAN.variables(BOARDS[0])["__rate_interval"] == "60s"
    long = Span(end=0, length=STEPS * 120, scrape=15)
    assert long.variables(BOARDS[0])["__rate_interval"] == "135s"


def test_a_variable_that_a_board_does_not_have_is_an_error() -> None:
    assert substituted('x{a=~"$a"}[$__range]', {"a": ".*", "__range": "9s"}) == 'x{a=~".*"}[9s]'
    with pytest.raises(KeyError):
        substituted("x[$nothing]", {})


def test_a_series_is_called_by_its_legend_or_by_all_its_labels() -> None:
    labels = {"phase": "decode", "policy": "Full"}
    assert called(Query("", "{{phase}} of {{pod}}"), labels) == "decode of"
    assert called(Query("", ""), labels) == "phase=decode, policy=Full"


def test_the_tables_know_neither_grafana_nor_matplotlib() -> None:
    files = {path.name: set(imported(path)) for path in (ROOT / "monitoring").rglob("*.py")}
    assert {name for name, modules in files.items() if "grafana_foundation_sdk" in modules} == {"grafana.py"}
    assert {name for name, modules in files.items() if "matplotlib" in modules} == {"drawn_panel.py", "picture.py"}
