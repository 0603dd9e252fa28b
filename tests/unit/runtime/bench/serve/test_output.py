"""The report as a person reads it."""

from pathlib import Path

import msgspec
import pytest

from graphpod_runtime.bench.serve.figures.record import Outcome, Record
from graphpod_runtime.bench.serve.figures.report import Report
from graphpod_runtime.bench.serve.figures.summary import summary
from graphpod_runtime.bench.serve.load.prompts import Form
from graphpod_runtime.bench.serve.output.plot import draw
from graphpod_runtime.bench.serve.output.table import table

from .samples import record, report


def test_one_row_is_shown_in_full() -> None:
    shown = table(report())
    assert shown.startswith("made-up-8b by stub 1.2.3 at http://somewhere:8000/v1")
    assert "requests   40 completed, 0 cancelled, 0 failed in" in shown
    assert "goodput " in shown
    assert "100% within ttft=200ms,tpot=20ms" in shown
    ttft = next(line for line in shown.splitlines() if line.startswith("TTFT"))
    assert ttft.split() == ["TTFT", "22.9", "23.0", "26.0", "26.0", "26.0"]
    assert "driver     2 processes, the busiest used 20% of a core, late by 1.0 ms (p99)" in shown
    assert "!" not in shown


def test_failures_come_first() -> None:
    shown = table(report("a", "b", failed=3)).splitlines()
    assert shown[:2] == ["FAILED: 3 of 40 requests of a", "  3 × HTTP 503, first: the queue is full"]
    assert shown[2] == "FAILED: 3 of 40 requests of b"


def test_a_driver_near_its_limit_is_a_warning() -> None:
    assert "! load: a driver process used 85% of a core" in table(report(busiest=0.85))
    assert "! load: the client was up to 7 ms late" in table(report(lag=0.007))


def seen(*records: Record, open_loop: bool = False) -> Report:
    """A report of these records."""
    one = report()
    part = msgspec.structs.replace(one.rows[0].parts[0], seen=summary(records, open_loop=open_loop))
    return msgspec.structs.replace(one, rows=(msgspec.structs.replace(one.rows[0], parts=(part,)),))


def test_what_makes_a_figure_doubtful_is_a_warning() -> None:
    late = record(due=0.0, sent=0.02, stamps=[0.5], output_tokens=1)
    assert "! load: requests were sent up to 20 ms late" in table(seen(late, open_loop=True))
    assert "sent up to" not in table(seen(late))
    assert "! load: 1 answers have fewer tokens than asked for" in table(seen(record(asked=9, output_tokens=3)))
    assert "! load: 1 answers came without usage" in table(seen(record(stamps=[0.5])))


def test_several_rows_are_a_line_each() -> None:
    lines = table(report("first", "second")).splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("first", "second"))] == ["first", "second"]


def test_later_turns_are_compared_with_the_first() -> None:
    one = seen(record(stamps=[0.4]), record(turn=1, stamps=[0.1]))
    assert "TTFT, turn 2" in table(one)
    lines = table(msgspec.structs.replace(one, rows=one.rows * 2)).splitlines()
    second = next(line for line in lines if line.startswith("load, turn 2"))
    assert second.split()[-3:] == ["100", "100", "0.25"]


def test_rows_of_two_reports_are_compared_where_their_requests_are_the_same() -> None:
    other = report("a", "b", "c", slower=2.0)
    (part,) = other.rows[1].parts
    for name, changes in (("b", {"words": "--concurrency 5"}), ("c", {"prompts": Form.Text})):
        changed = msgspec.structs.replace(part, **changes)
        other = other.with_row(msgspec.structs.replace(other.row(name), parts=(changed,)))
    lines = table(report("a", "b", "c"), other).splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("× of made-up-8b by stub"))
    assert lines[at + 2].split()[0] == "a"
    assert lines[at + 2].split()[3:5] == ["0.50", "0.50"]
    assert lines[at + 3 :] == []
    assert "no row is in both reports with the same words, prompts and seed" in table(report("d"), other)


@pytest.mark.parametrize("names", [("one",), ("a", "b", "c")])
def test_a_picture_is_drawn_of_one_row_and_of_several(names: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "pictures" / "p.png"
    draw(report(*names), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


def test_a_row_without_an_answer_can_be_drawn(tmp_path: Path) -> None:
    nothing = seen(record(outcome=Outcome.Failed, error="timeout"))
    draw(nothing, tmp_path / "one.png")
    draw(msgspec.structs.replace(nothing, rows=nothing.rows * 2), tmp_path / "two.png")
    assert (tmp_path / "two.png").exists()
