"""The words, limits and gates of the benchmark of many services."""

import contextlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.operator_scale import __main__ as command
from benchmarks.operator_scale import growth, page, report
from benchmarks.operator_scale.floor import Floor
from benchmarks.operator_scale.growth import Growth, Runs, Server, Stage
from benchmarks.operator_scale.measure import Applied, Moment, Run, line
from benchmarks.operator_scale.report import ROWS, Found

GOOD = Run(
    services=1000, fill_seconds=40, ready_seconds=50, ready_p50=20, ready_p99=45, children=5000, writes_most=9,
    writes_mean=8.5, fill_cpu=20, rss_begin=70_000_000, rss_ready=120_000_000, rss_peak=130_000_000, quiet_writes=0,
    restart_seconds=4, restart_writes=0, restart_cpu=3, restart_peak=140_000_000, late_list_seconds=12,
    late_list_writes=0, failover_seconds=17, failover_settled=19, failover_writes=0, cpu={"etcd": 9.0},
    moments=(Moment(1.0, 100, 50, 0, 1, 0.1),),
)  # fmt: skip

ALONE = Applied(services=1000, applied_seconds=30, applied_cpu=18, applied_peak=110_000_000, cpu={"etcd": 3.0})


def found(services: int, *runs: Run) -> Found:
    count = len(runs)
    return Found(services, "command", "2026-01-01", "machine", {}, (0.5,) * count, (ALONE,) * count, runs)


def test_what_holds_is_not_told() -> None:
    assert list(report.exceeded([found(1000, GOOD)], {})) == []


def test_a_promise_that_does_not_hold_is_told_with_its_figure() -> None:
    (told,) = report.exceeded([found(1000, replace(GOOD, rss_peak=151_000_000))], {})
    assert told == "1000 services: RSS at its peak: 151.0 MB, promised is 150"


def test_one_run_with_one_write_too_many_is_enough() -> None:
    (told,) = report.exceeded([found(50, GOOD, replace(GOOD, quiet_writes=1))], {})
    assert "writes in the quiet: 1.0 writes, promised is 0" in told


def grown(
    *seconds: float,
    cpu: tuple[float, ...] = (18.0, 90.0, 18.0),
    floors: tuple[float, ...] = (20.0, 100.0, 20.0),
) -> Growth:
    services = (1000, 5000, 1000)
    alone = (
        replace(ALONE, services=count, applied_seconds=applied, applied_cpu=spent)
        for count, applied, spent in zip(services, seconds, cpu, strict=True)
    )
    return Growth(*map(Stage, (0.5, 2.0, 2.0), alone, map(Floor, services, floors, ({}, {}, {}))))


def runs(server: Server, *times: float, cpu: tuple[float, ...] = (5.0, 5.0, 5.0)) -> Runs:
    """One run for each of `times`, the growth of the wall clock; `cpu` is that of the operator's CPU time."""
    return Runs(
        server,
        tuple(grown(28, 30 * time, 32, cpu=(18, 18 * spent, 18)) for time, spent in zip(times, cpu, strict=False)),
    )


@pytest.mark.parametrize(("server", "most"), [(Server.AsItComes, 6.0), (Server.Bitmap, 5.5)])
def test_the_median_of_three_runs_is_held_against_what_is_promised_of_wall_clock_and_cpu_time(
    server: Server, most: float
) -> None:
    assert runs(server, most, most, most).holds
    assert runs(server, most - 0.1, most + 3, most).holds, "one run may be disturbed"
    assert not runs(server, most + 0.01, most + 0.01, 5).holds
    assert runs(server, most, most, most, cpu=(5.4, 5.4, 9)).holds
    assert not runs(server, 5, 5, 5, cpu=(5.41, 5.41, 5)).holds


def test_fewer_runs_show_nothing_and_an_api_server_that_only_explains_promises_nothing() -> None:
    few = runs(Server.AsItComes, 5, 5)
    assert (few.holds, few.breaks) == (None, True)
    explains = runs(Server.Emulating, 9)
    assert (explains.holds, explains.breaks) == (None, False)


def test_what_was_found_is_told_in_a_sentence() -> None:
    found = (
        "5000 services take 6.10 times as long as 1000 and 5.00 times the operator's CPU time, "
        "a bare client 5.00 times as long "
    )
    promised = "promised is at most 6 and 5.4, by the median of 3 runs"
    of_three = f"{found}(the median of 3 runs): {promised}, which does not hold"
    assert str(runs(Server.AsItComes, 6.1, 6.1, 6.2)) == of_three
    assert str(runs(Server.AsItComes, 6.1)) == f"{found}(one run): {promised}, 2 of which are still to be made"
    assert str(runs(Server.Emulating, 6.1)) == f"{found}(one run): nothing is promised here"


def test_what_a_bare_client_takes_explains_and_excuses_nothing() -> None:
    slow = grown(30, 183, 30, floors=(20, 130, 20))
    assert not Runs(Server.AsItComes, (slow, slow, slow)).holds


def test_growth_is_measured_side_by_side_saved_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def applied(services: int, name: str, folder: Path, flags: tuple[str, ...]) -> Applied:
        done.append(f"operator {services} {len(flags)}")
        return replace(ALONE, services=services, applied_seconds=services / 10 + 100 * len(flags))

    def floor(services: int, name: str, folder: Path, flags: tuple[str, ...], *, alone: bool) -> Floor:
        assert alone
        done.append(f"client {services} {len(flags)}")
        return Floor(services, services / 10, {})

    file = tmp_path / "growth.json"
    monkeypatch.setattr(growth, "compiled", contextlib.nullcontext)
    monkeypatch.setattr(growth, "applied", applied)
    monkeypatch.setattr(growth, "floor", floor)
    monkeypatch.setattr("sys.argv", ["growth", "--services", "100", "--json", str(file), "--gate"])
    assert growth.main() == 0
    assert done == [
        f"{who} {count} {flags}"
        for flags in (0, 1, 2, 0, 2, 0, 2)  # what is promised nothing of is measured once
        for who in ("operator", "client")
        for count in (100, 500, 100)
    ]
    found = growth.load(json.loads(file.read_text()))
    assert [len(grown.runs) for grown in found.values()] == [3, 1, 3]
    for run in (run for grown in found.values() for run in grown.runs):
        assert [stage.services for stage in run.stages] == [stage.floor.services for stage in run.stages]
    assert [(grown.times, grown.floor_times) for grown in found.values()] == [(5, 5), (150 / 110, 5), (250 / 210, 5)]
    monkeypatch.setattr(growth, "RESULTS", file)
    told = page.page()
    assert "| 3 | 500 | 50.0 s | 18.0 s | 110 MB | 50.0 s |" in told
    assert "One that emulates and counts no addresses, by `--emulated-version=1.33`" in told
    assert "| 2 | 500 | 250.0 s | 18.0 s | 110 MB | 50.0 s |" in told


@pytest.mark.parametrize("slow", Server)
@pytest.mark.parametrize("what", ["wall clock", "CPU time"])
def test_growth_that_breaks_its_promise_ends_with_1(slow: Server, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(count: int, name: str, server: Server) -> Growth:
        if server is not slow:
            return grown(10, 50, 10)
        return grown(10, 100, 10) if what == "wall clock" else grown(10, 50, 10, cpu=(18, 100, 18))

    monkeypatch.setattr(growth, "compiled", contextlib.nullcontext)
    monkeypatch.setattr(growth, "measured", measured)
    for words, status in ((["growth", "--gate"], int(slow is not Server.Emulating)), (["growth"], 0)):
        monkeypatch.setattr("sys.argv", words)
        assert growth.main() == status


def test_a_gate_needs_three_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "compiled", contextlib.nullcontext)
    monkeypatch.setattr(growth, "measured", lambda count, name, server: grown(10, 50, 10))
    for made, status in (("2", 1), ("3", 0)):
        monkeypatch.setattr("sys.argv", ["growth", "--gate", "--runs", made])
        assert growth.main() == status


def test_gates_cite_their_runs_and_stop_what_is_a_fifth_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "GATES", tmp_path / "gates.json")
    report.set_gates([found(1000, GOOD, replace(GOOD, fill_seconds=44))])
    gates = report.load_gates()
    assert gates["runs"]["1000"]["runs"] == 2
    assert gates["gates"]["1000"]["fill_seconds"] == 50.4
    (told,) = report.exceeded([found(1000, replace(GOOD, fill_seconds=51))], gates)
    assert told == "1000 services: … while controllers run: 51.0 s, the gate is 50.4"


def test_a_figure_that_breaks_its_promise_has_no_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "GATES", tmp_path / "gates.json")
    report.set_gates([found(1000, replace(GOOD, restart_seconds=6))])
    gates = report.load_gates()["gates"]["1000"]
    assert "restart_seconds" not in gates
    assert gates["applied_seconds"] == 36.0


def scale(monkeypatch: pytest.MonkeyPatch, folder: Path, runs: Iterable[Run], *options: str) -> int:
    """The command over runs that were made already. Fewer than are asked for: the next one fails."""
    made = iter(runs)
    monkeypatch.setattr(report, "GATES", folder / "gates.json")
    monkeypatch.setattr(command, "compiled", contextlib.nullcontext)
    monkeypatch.setattr(command, "run", lambda *_: next(made))
    monkeypatch.setattr(command, "applied", lambda *_: ALONE)
    monkeypatch.setattr("sys.argv", ["operator_scale", "--json", str(folder / "results.json"), *options])
    return command.main()


def test_runs_that_break_a_promise_end_with_1_and_leave_their_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scale(monkeypatch, tmp_path, [replace(GOOD, quiet_writes=1)], "--gate", "--set-gates") == 1
    (left,) = report.load(tmp_path / "results.json")
    assert left.runs[0].quiet_writes == 1


def test_runs_that_keep_every_promise_make_gates_whatever_the_earlier_ones_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scale(monkeypatch, tmp_path, [replace(GOOD, fill_seconds=10)], "--gate", "--set-gates") == 0
    assert scale(monkeypatch, tmp_path, [GOOD], "--gate") == 1
    assert scale(monkeypatch, tmp_path, [GOOD], "--gate", "--set-gates") == 0
    assert report.load_gates()["gates"]["1000"]["fill_seconds"] == 48.0


def test_a_series_that_does_not_end_leaves_the_results_of_one_that_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale(monkeypatch, tmp_path, [GOOD, GOOD], "--runs", "2")
    kept = (tmp_path / "results.json").read_text()
    with pytest.raises(StopIteration):
        scale(monkeypatch, tmp_path, [replace(GOOD, fill_seconds=41)], "--runs", "2")
    assert (tmp_path / "results.json").read_text() == kept
    (begun,) = report.load(report.incomplete(tmp_path / "results.json"))
    assert [run.fill_seconds for run in begun.runs] == [41]
    scale(monkeypatch, tmp_path, [replace(GOOD, fill_seconds=42)] * 2, "--runs", "2")
    assert [run.fill_seconds for run in report.load(tmp_path / "results.json")[0].runs] == [42, 42]
    assert not report.incomplete(tmp_path / "results.json").exists()


def test_results_of_other_numbers_of_services_stay(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    report.save([found(5000, GOOD)], file)
    report.save([found(1000, GOOD)], file)
    assert list(json.loads(file.read_text())) == ["1000", "5000"]


def test_what_was_saved_is_read_again_with_its_floor(tmp_path: Path) -> None:
    told = replace(found(1000, GOOD), floor=Floor(1000, 32.0, {"etcd": 5.0}))
    report.save([told], tmp_path / "results.json")
    assert report.load(tmp_path / "results.json") == [told]
    assert "1.25 times the floor" in report.table(told, {})


def test_more_than_the_usual_promise_no_memory() -> None:
    many = found(5000, replace(GOOD, rss_peak=400_000_000))
    assert list(report.exceeded([many], {})) == []


def test_the_page_tells_what_the_results_hold() -> None:
    assert page.PAGE.read_text() == page.page()


def test_a_table_has_a_line_for_each_figure_and_one_for_what_ran_beside() -> None:
    told = report.table(found(1000, GOOD, GOOD), {}).splitlines()
    assert told[0] == "1000 services, 2 runs, load before 0.5, 0.5"
    assert len(told) == len(ROWS) + 2
    assert told[-1] == "  CPU s of the others: etcd 9"


def test_the_line_of_a_second_shows_how_many_are_done() -> None:
    told = line(Moment(12.0, 1000, 4310, 500, 92_000_000, 8.25), 500, 1000)
    assert "Ready   500" in told
    assert told.count("█") == told.count("░") == 12
