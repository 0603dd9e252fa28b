"""What follows from the records of requests."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.bench.figures.result_file import write
from graphpod_runtime.bench.serve.figures.record import Outcome, Record
from graphpod_runtime.bench.serve.figures.report import FORMAT, read
from graphpod_runtime.bench.serve.figures.slo import Slo, slo_of
from graphpod_runtime.bench.serve.figures.spread import spread
from graphpod_runtime.bench.serve.figures.summary import BINS, summary

from .samples import record, report

VALUES = st.lists(st.floats(0, 1e3), min_size=1, max_size=60)


@given(VALUES)
def test_percentiles_are_those_of_numpy_and_ascend(values: list[float]) -> None:
    found = spread(values)
    assert found is not None
    assert found.curve == pytest.approx(np.percentile(values, range(101)))
    assert (found.p50, found.p90, found.p99) == tuple(found.curve[at] for at in (50, 90, 99))
    assert list(found.curve) == sorted(found.curve)
    assert (found.curve[0], found.curve[-1], found.count) == (min(values), max(values), len(values))


def test_there_are_no_percentiles_of_nothing() -> None:
    assert spread([]) is None


def test_the_figures_of_one_request() -> None:
    one = record(sent=1.0, stamps=[1.5, 1.6, 1.8], last=1.9, end=2.0, output_tokens=5)
    assert one.ttft == pytest.approx(0.5)
    assert one.gaps == pytest.approx([0.1, 0.2])
    assert one.tpot == pytest.approx(0.4 / 4)
    assert one.e2e == pytest.approx(1.0)


def test_a_request_sent_late_has_waited_since_it_was_due() -> None:
    one = record(due=0.8, sent=1.0, stamps=[1.5], end=1.6)
    assert (one.ttft, one.e2e, one.late) == pytest.approx((0.7, 0.8, 0.2))


def test_tokens_are_the_servers_count_else_pieces() -> None:
    assert record(stamps=[1.0, 2.0], output_tokens=7).tokens == 7
    assert record(stamps=[1.0, 2.0], output_tokens=None).tokens == 2
    assert record(stamps=[1.0], output_tokens=1).tpot is None


RECORDS = st.lists(
    st.builds(
        lambda sent, ttft, gaps, outcome: record(
            sent=sent,
            stamps=[sent + ttft + sum(gaps[:at]) for at in range(len(gaps) + 1)],
            last=sent + ttft + sum(gaps),
            end=sent + ttft + sum(gaps),
            outcome=outcome,
            error="HTTP 429" if outcome is Outcome.Failed else "",
        ),
        st.floats(0, 10),
        st.floats(0.001, 2),
        st.lists(st.floats(0, 0.5), max_size=5),
        st.sampled_from(Outcome),
    ),
    max_size=20,
)


@given(RECORDS, st.floats(0.001, 2), st.floats(0.001, 1))
def test_every_request_is_counted_once_and_more_generous_limits_are_met_more_often(
    records: list[Record], ttft: float, tpot: float
) -> None:
    tight, loose = (summary(records, Slo(ttft * more, tpot * more)) for more in (1, 2))
    assert tight.requests == len(records)
    assert sum(failure.count for failure in tight.failures) == tight.failed
    assert tight.goodput is not None
    assert loose.goodput is not None
    assert tight.goodput.requests_per_second <= loose.goodput.requests_per_second <= tight.requests_per_second
    assert 0 <= tight.goodput.share <= loose.goodput.share <= 1


@given(RECORDS)
def test_rates_times_seconds_are_the_counts_and_the_timeline_has_every_piece(records: list[Record]) -> None:
    found = summary(records)
    assert found.requests_per_second * found.seconds == pytest.approx(found.completed)
    assert found.output_tokens_per_second * found.seconds == pytest.approx(found.output_tokens)
    line = found.timeline
    assert len(line.in_flight) == len(line.pieces_per_second) == BINS
    assert sum(line.pieces_per_second) * line.step == pytest.approx(found.pieces)
    assert 0 <= min(line.in_flight) <= max(line.in_flight) <= len(records)


def test_failures_are_counted_by_kind_with_what_the_first_of_them_said() -> None:
    said = [("HTTP 429", "full", 2.0), ("timeout", "slow", 1.0), ("HTTP 429", "full first", 0.5)]
    records = [
        record(sent=sent, end=sent + 1, outcome=Outcome.Failed, error=kind, message=message)
        for kind, message, sent in said
    ]
    found = summary([*records, record()])
    assert [(one.kind, one.count, one.example) for one in found.failures] == [
        ("HTTP 429", 2, "full first"),
        ("timeout", 1, "slow"),
    ]
    assert (found.failed, found.completed) == (3, 1)


def test_a_failure_is_no_good_request_and_a_cancelled_one_is_not_judged() -> None:
    good = record(stamps=[0.1], end=0.2)
    records = [good, record(outcome=Outcome.Cancelled, stamps=[0.1]), record(outcome=Outcome.Failed, error="x")]
    found = summary(records, Slo(ttft=1.0)).goodput
    assert found is not None
    assert found.share == 0.5


@pytest.mark.parametrize(
    ("word", "slo"),
    [
        ("ttft=200ms,tpot=20ms", Slo(ttft=0.2, tpot=0.02)),
        ("e2e=1.5s", Slo(e2e=1.5)),
    ],
)
def test_an_objective_reads_as_it_is_written(word: str, slo: Slo) -> None:
    assert slo_of(word) == slo
    assert slo_of(str(slo)) == slo


@pytest.mark.parametrize("word", ["ttft", "ttft=2", "ttft=-1s", "itl=3ms", "ttft=1s,ttft=2s", ""])
def test_what_is_no_objective_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="limit"):
        slo_of(word)


def test_a_limit_holds_up_to_its_value_and_an_answer_of_one_token_has_no_tpot_to_miss() -> None:
    slo = Slo(ttft=0.2, tpot=0.02)
    assert slo.holds(0.2, 0.02, 9)
    assert slo.holds(0.1, None, 9)
    assert not slo.holds(0.21, 0.02, 9)
    assert not slo.holds(0.2, 0.021, 9)
    assert not slo.holds(None, None, 9)


def test_times_by_turn_are_told_apart() -> None:
    found = summary([record(stamps=[0.4]), record(turn=1, stamps=[0.1])])
    assert [turn.p50 for turn in found.turn_ttft if turn] == [0.4, 0.1]
    assert summary([record()]).turn_ttft == ()


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "r.json"
    write(report(), path)
    assert read(path) == report()
    assert [file.name for file in path.parent.iterdir()] == ["r.json"]


def test_a_file_that_is_no_report_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with pytest.raises(match=r"r\.json: No such file"):
        read(path)
    path.write_text("{}")
    with pytest.raises(match="not what `bench serve --json` writes"):
        read(path)
    write(msgspec.structs.replace(report(), format="graphpod bench serve 0"), path)
    with pytest.raises(match=f"this version reads '{FORMAT}'"):
        read(path)


def test_a_row_takes_the_place_of_the_one_of_its_name() -> None:
    one = report("a", "b")
    again = msgspec.structs.replace(one.rows[0], words="--rate 1")
    assert [row.words for row in one.with_row(again).rows] == ["--rate 1", one.rows[1].words]
    assert [row.name for row in one.with_row(msgspec.structs.replace(again, name="c")).rows] == ["a", "b", "c"]
