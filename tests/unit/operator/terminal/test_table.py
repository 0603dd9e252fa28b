"""The table at the widths of terminals."""

import re
from pathlib import Path
from typing import Any

import pytest

from graphpod_operator.explain.text import coloured
from graphpod_operator.terminal.values.load import Load
from graphpod_operator.terminal.values.service import ServiceState
from graphpod_operator.terminal.views.row import PodRead, Row, from_pods, from_prometheus
from graphpod_operator.terminal.views.screen import draw
from graphpod_operator.terminal.views.table import rate, table
from tests.unit.operator.terminal.services import service, state

GOLDENS = Path(__file__).resolve().parents[1] / "goldens" / "terminal"


def doing(**changes: Any) -> Load:
    values: dict[str, Any] = {
        "running": 12.0, "waiting": 3.0, "kv": 0.41, "replays": {"prefill": 1.5, "decode": 118.0},
        "fallbacks": {}, "padding": 0.17, "ttft": 0.184, "drafts": None,
    }  # fmt: skip
    return Load(**{**values, **changes})


@pytest.fixture
def rows() -> list[Row]:
    weaker = service("qwen3-8b-for-the-whole-company-eu", "Degraded", pods="1/2")
    weaker["status"]["graph"]["prefill"] |= {"planned": "Piecewise", "effective": "Disabled"}
    weaker["status"]["graph"]["captured"] = "4/26"
    starting = service("llama", "Starting", pods="0/1")
    for phase in ("prefill", "decode"):
        del starting["status"]["graph"][phase]["effective"]
    falls = doing(fallbacks={"PaddingGate": 0.31, "NotCaptured": 0.042}, ttft=2.31)
    return [
        Row(state(), doing(), 2, 0),
        Row(ServiceState.of(starting), None, 0, 0),
        Row(ServiceState.of({"metadata": {"namespace": "team-a", "name": "new"}}), None, 0, 0),
        Row(ServiceState.of(weaker), falls, 2, 1, ("pod qwen3-8b-x-1: no answer within 4 s",)),
    ]


@pytest.mark.parametrize("width", [80, 140, 200])
def test_the_table_is_the_golden_one(rows: list[Row], width: int) -> None:
    lines = table(rows, width, namespaces=False)
    assert max(map(len, lines)) <= width
    assert "\n".join(lines) + "\n" == (GOLDENS / f"top-{width}.txt").read_text()


@pytest.mark.parametrize("width", range(20, 260, 7))
def test_no_line_is_longer_than_the_terminal(rows: list[Row], width: int) -> None:
    assert max(len(line) for line in table(rows, width, namespaces=True)) <= width


def test_at_every_width_a_name_a_status_and_the_rates_are_there(rows: list[Row]) -> None:
    for width in range(60, 200, 10):
        head = table(rows, width, namespaces=False)[0]
        assert all(title in head for title in ("NAME", "STATUS", "REPL", "FALL", "NOTE"))


@pytest.mark.parametrize("width", [80, 140])
def test_the_share_of_right_drafts_has_a_column_where_a_service_verifies_some(width: int) -> None:
    without = table([Row(state(), doing(), 2, 0), Row(state("other"), doing(), 1, 0)], width, namespaces=False)
    lines = table([Row(state(), doing(drafts=0.42), 2, 0), Row(state("other"), doing(), 1, 0)], width, namespaces=False)
    title = "DRFT" if width == 80 else "DRAFTS RIGHT"
    assert title in lines[0]
    assert not any(title in line for line in without)
    if width == 80:
        assert set(lines[0].split()) == {*without[0].split(), title}, "it takes the place of no other column"
    at = lines[0].index(title) + len(title)
    assert [line[:at].split()[-1] for line in lines[1:3]] == ["42%", "-"]


def test_fallbacks_by_reason_stand_below_a_table_whose_column_has_the_sum(rows: list[Row]) -> None:
    said = "qwen3-8b-for-the-whole-company-eu: falls back by PaddingGate 0.31/s, NotCaptured 0.04/s"
    assert said in table(rows, 140, namespaces=False)
    assert not any("falls back" in line for line in table(rows, None, namespaces=False))


def test_lines_below_the_table_are_bounded() -> None:
    many = [Row(state(f"s{n}"), None, 1, 1, (f"pod p{n}: hangs",)) for n in range(50)]
    lines = table(many, 80, namespaces=False)
    assert len(lines) == 1 + 50 + 1 + 8 + 1
    assert lines[-1] == "and 42 more; all of them: graphpod top -o json"


def test_a_pod_without_a_scrape_is_a_note_and_the_others_count() -> None:
    row = from_pods(state(), [PodRead("demo-1", None, None, "no answer within 4 s")])
    assert (row.load, row.unread, row.pods) == (None, 1, 1)
    assert row.troubles == ("pod demo-1: no answer within 4 s",)


def test_a_running_service_without_series_in_prometheus_says_so() -> None:
    assert from_prometheus(state(), {}).troubles[0].startswith("Prometheus has no series")
    assert from_prometheus(state(), {("team-a", "demo"): doing()}).troubles == ()
    assert from_prometheus(state(graph={}), {}).troubles == (), "nothing runs yet"


def test_text_of_others_cannot_drive_the_terminal() -> None:
    raw = service(phase="\x1b[2JReady\n")
    raw["status"]["graph"]["captured"] = "\x9b31m1/2"
    lines = table([Row(ServiceState.of(raw), None, 0, 0)], 140, namespaces=False)
    assert all(line.isprintable() for line in lines)


def test_no_services_are_a_sentence() -> None:
    assert table([], 80, namespaces=False) == ["no InferenceServices"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (0.004, "0"), (0.042, "0.04"), (0.996, "1.0"), (4.25, "4.2"), (99.6, "100")),
        *((12_345, "12k"), (2e6, "2.0M"), (1e15, ">1G")),
    ],
)
def test_a_rate_is_short(value: float, text: str) -> None:
    assert rate(value) == text


def test_a_frame_fits_into_the_height_and_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    draw("head", [f"line {number}" for number in range(50)], 10)
    frame = capsys.readouterr().out
    assert frame.count("\n") == 9
    assert "and 43 more lines" in frame


def test_colours_change_no_width(rows: list[Row]) -> None:
    plain = table(rows, 80, namespaces=False)
    painted = [re.sub(r"\x1b\[\d+m", "", line) for line in table(rows, 80, namespaces=False, paint=coloured)]
    assert painted == plain
