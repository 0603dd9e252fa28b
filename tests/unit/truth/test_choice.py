"""Which cells run where not all do: a seeded sample, and what a time limit leaves out."""

import json
import time
from functools import cache
from pathlib import Path

import pytest

from graphpod_policy import Device
from truth import jobs
from truth.__main__ import main
from truth.axes import refused_by, variants
from truth.cell import Cell, Key, Outcome
from truth.choice import sample, with_drawn_faults
from truth.engines import features_of
from truth.kept_cells import SOURCES, fingerprint, incomplete, keep, kept
from truth.matrix import Matrix
from truth.models import small, subjects
from truth.ranks.spread import ALONE, Spread
from truth.scenarios import SCENARIOS, Name

RANKS = tuple(one for one in SCENARIOS if one.over_ranks)


def whole(device: Device = Device.Cpu) -> Matrix:
    return Matrix(device, subjects(device), variants(), RANKS, spread=Spread(tensor=2))


@cache
def with_faults() -> Matrix:
    """The same with drawn faults."""
    return with_drawn_faults(whole())[0]


@pytest.mark.parametrize("count", [30, 100])
def test_a_sample_has_about_so_many_cells_which_no_rule_refuses(count: int) -> None:
    drawn = with_faults()
    found = sample(drawn, count)
    assert count <= len(found) == len(found.scenes()) < count + len(RANKS)
    assert all(
        refused_by(features_of(small("LlamaForCausalLM"), Device.Cpu), key.variant) is None for key in found.scenes()
    )
    assert sample(drawn, count) == found


def test_a_sample_of_gpus_has_rows_that_run_there() -> None:
    assert 60 <= len(sample(whole(Device.Cuda), 60)) < 60 + len(RANKS)


def test_drawn_faults_meet_every_pair_in_a_third_of_the_cells() -> None:
    matrix = whole()
    drawn, coverage = with_drawn_faults(matrix)
    assert coverage.covered == coverage.tuples == 920
    assert str(coverage) == f"{coverage.drawn} of 23760 faults are drawn: 920 of 920 pairs meet in them"
    faults = {key: one for key, one in drawn.scenes().items() if one.like}
    assert coverage.drawn == len(faults) < 250
    assert {one.fault_of for one in faults.values()} == {None, 0, 1}
    of_grammars = [one for one in faults.values() if one.like is Name.Grammars]
    assert {one.fault for one in of_grammars} == {one.fault for one in RANKS if one.fault}
    assert {one.fault_of for one in of_grammars} == {None, 0, 1}
    assert drawn == with_faults(), "another draw is the same"


def test_all_faults_are_one_of_each_kind_in_each_row_that_captures() -> None:
    drawn, coverage = with_drawn_faults(whole(), whole=True)
    rows = {key[:2] for key, one in drawn.scenes().items() if one.like}
    assert coverage.drawn == 3 * len(rows) == 3 * 24 * 11


def test_cells_without_a_fault_are_all_there() -> None:
    assert {key for key, one in whole().scenes().items() if one.fault is None} <= with_faults().scenes().keys()


def started_matrix(tmp_path: Path) -> tuple[Matrix, Path, list[Key]]:
    """Three cells, the file of those that a run has left, and their keys."""
    matrix = Matrix(Device.Cpu, (small("LlamaForCausalLM"),), variants()[:1], RANKS[:3])
    return matrix, incomplete(tmp_path / "cpu.json"), list(matrix.scenes())


def test_a_run_goes_on_behind_the_cells_that_it_has_kept(tmp_path: Path) -> None:
    matrix, file, (first, second, third) = started_matrix(tmp_path)
    assert kept(file, matrix, "a") == ({}, 0, 0)
    keep(file, Cell(*first, Outcome.Passed), "a")
    keep(file, Cell(*second, Outcome.Failed), "a")
    keep(file, Cell(*third, Outcome.Passed, met="rank 1; plain"), "a")  # of another draw
    keep(file, Cell("Other", *first[1:], Outcome.Passed), "a")
    before = file.read_text()
    done, *dropped = kept(file, matrix, "a")
    assert (done, dropped) == ({first: Cell(*first, Outcome.Passed)}, [0, 0])
    assert list(matrix.without(done).scenes()) == [second, third]
    assert file.read_text() == before, "a run of another part takes the others"


def test_cells_that_ran_other_code_are_dropped(tmp_path: Path) -> None:
    matrix, file, (first, second, _) = started_matrix(tmp_path)
    keep(file, Cell(*first, Outcome.Passed), "before a change")
    keep(file, Cell(*second, Outcome.Passed), "after it")
    with file.open("a") as lines:  # as an earlier version wrote them, without a fingerprint
        lines.write(json.dumps(Cell(*first, Outcome.Passed).as_dict()) + "\n")
    assert kept(file, matrix, "after it") == ({second: Cell(*second, Outcome.Passed)}, 1, 1)
    assert kept(file, matrix, "after it") == ({second: Cell(*second, Outcome.Passed)}, 0, 0)


def test_a_line_that_a_kill_has_cut_stops_no_run_and_spoils_no_later_line(tmp_path: Path) -> None:
    matrix, file, (first, second, third) = started_matrix(tmp_path)
    keep(file, Cell(*first, Outcome.Passed), "a")
    keep(file, Cell(*second, Outcome.Passed, because="–"), "a")
    file.write_bytes(file.read_bytes()[: file.read_bytes().rindex("–".encode()) + 1])  # amid a character
    assert kept(file, matrix, "a") == ({first: Cell(*first, Outcome.Passed)}, 0, 1)
    keep(file, Cell(*third, Outcome.Passed), "a")
    assert list(kept(file, matrix, "a").cells) == [first, third]


def test_a_fingerprint_is_of_names_and_contents_of_code_and_of_nothing_else(tmp_path: Path) -> None:
    code = tmp_path / "runtime"
    code.mkdir()
    (code / "a.py").write_text("A = 1\n")
    first = fingerprint([code])
    (code / "notes.md").write_text("no code")
    assert fingerprint([code]) == first
    (code / "a.py").write_text("A = 2\n")
    second = fingerprint([code])
    (code / "a.py").rename(code / "b.py")
    assert len({first, second, fingerprint([code])}) == 3
    assert {folder.name for folder in SOURCES} == {"policy", "runtime", "truth"}
    assert all(any(folder.rglob("*.py")) for folder in SOURCES)


def test_a_run_says_which_cells_it_takes_and_which_it_drops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "cpu.json"
    words = ["--subject", "Llama", "--policy", "Breakable / Full", "--scenario", Name.Plain, "--json", str(result)]
    rows = [variant for variant in variants() if "Breakable / Full" in str(variant)]
    here = f"{fingerprint()}, {ALONE}"
    for variant, code in zip(rows, (here, here, f"{fingerprint()}, {Spread(pipeline=2)}"), strict=True):
        keep(incomplete(result), Cell("Llama", variant, Name.Plain, Outcome.Passed), code)
    assert main([*words, "--minutes", "0.0001"]) == 0
    said = capsys.readouterr().out
    assert f"2 cells are in {incomplete(result)}, of this code ({here}); --again" in said
    assert f"1 cells of {incomplete(result)} ran other code than this" in said
    assert "1 of 3 cells not reached" in said


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_a_time_limit_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], minutes: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--minutes", minutes])
    assert "give more than 0, or leave it out for no limit" in capsys.readouterr().err


def test_cells_that_a_time_limit_leaves_out_are_no_failures() -> None:
    told: list[Cell] = []
    matrix = Matrix(Device.Cpu, (small("LlamaForCausalLM"),), variants()[:1], RANKS[:1])
    assert jobs.run(matrix, 1, lambda done, of, cell: told.append(cell), time.monotonic()) == told == []


def test_a_run_that_reaches_nothing_says_so_and_ends_0(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--subject", "Llama", "--policy", "Breakable / Full", "--scenario", Name.Plain, "--minutes", "0.0001"]
    assert main(words) == 0
    assert "3 of 3 cells not reached in 0.0001 minutes" in capsys.readouterr().out
