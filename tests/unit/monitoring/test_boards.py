"""The table of dashboards: what it names exists, and Grafana gets whole, read-only boards."""

import json
import re

import pytest

from monitoring.boards import BOARDS, grafana
from monitoring.boards.asking import STEPS, Span, called, substituted
from monitoring.boards.row import COLUMNS, Board, Panel, Query
from tests.unit.house.pages import ROOT
from tests.unit.house.test_import_law import imported
from tests.unit.monitoring.promql import SERIES, unknown

PANELS = [(board, panel) for board in BOARDS for panel in board.panels()]
MAX_BYTES = 1 << 20
"""Of a ConfigMap."""
SPAN = Span(end=1000.0, length=600.0, scrape=15.0)


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda value: getattr(value, "title", None))
def test_a_panel_asks_for_series_and_labels_that_are_exported(board: Board, panel: Panel) -> None:
    for query in panel.queries:
        expr = substituted(query.expr, SPAN.variables(board))
        assert unknown(expr) == set()
        assert SERIES.search(expr)
        assert expr.count("(") == expr.count(")")
        assert "$" not in expr
        assert set(re.findall(r"\[([^\]]*)\]", query.expr)) <= {"$__rate_interval", "$__range"}


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda value: getattr(value, "title", None))
def test_a_panel_says_what_it_shows(board: Board, panel: Panel) -> None:
    assert panel.means.endswith(".")
    assert panel.quiet.endswith(".") or not panel.quiet
    assert "Empty" in panel.description, "whoever sees nothing must learn why"
    assert panel.queries


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
    assert called(Query("", "{{phase}} of {{pod}}"), labels) == "decode of "
    assert called(Query("", ""), labels) == "phase=decode, policy=Full"


def test_the_tables_know_neither_grafana_nor_matplotlib() -> None:
    files = {path.name: set(imported(path)) for path in (ROOT / "monitoring").rglob("*.py")}
    assert {name for name, modules in files.items() if "grafana_foundation_sdk" in modules} == {"grafana.py"}
    assert {name for name, modules in files.items() if "matplotlib" in modules} == {"picture.py"}
