"""Which cells run where not all do: a seeded sample, and what a time limit leaves out."""

import time
from pathlib import Path

import pytest

from graphpod_policy import Device
from truth import jobs
from truth.__main__ import main
from truth.axes import refused_by, variants
from truth.cell import Cell, Outcome
from truth.choice import sample, with_drawn_faults
from truth.engines import features_of
from truth.kept_cells import incomplete, keep, kept
from truth.matrix import Matrix
from truth.models import small, subjects
from truth.scenarios import SCENARIOS, Name

RANKS = tuple(one for one in SCENARIOS if one.over_ranks)


def whole(device: Device = Device.Cpu) -> Matrix:
    return Matrix(device, subjects(device), variants(), RANKS, tensor=2)


@pytest.mark.parametrize("count", [30, 100])
def test_a_sample_has_about_so_many_cells_which_no_rule_refuses(count: int) -> None:
    drawn, _ = with_drawn_faults(whole())
    found = sample(drawn, count)
    assert count <= len(found) == len(found.scenes()) < count + len(RANKS)
    assert all(
        refused_by(features_of(small("LlamaForCausalLM"), Device.Cpu), key.variant) is None for key in found.scenes()
    )
    assert not {key.subject for key in found.scenes()} & {"Phi3", "DeepseekV2", "Glm"}
    assert sample(drawn, count) == found


def test_a_sample_of_gpus_has_rows_that_run_there() -> None:
    assert 60 <= len(sample(whole(Device.Cuda), 60)) < 60 + len(RANKS)


def test_drawn_faults_meet_every_pair_in_a_third_of_the_cells() -> None:
    matrix = whole()
    drawn, coverage = with_drawn_faults(matrix)
    assert coverage.covered == coverage.tuples == 776
    assert str(coverage) == f"{coverage.drawn} of 17820 faults are drawn: 776 of 776 pairs meet in them"
    faults = {key: one for key, one in drawn.scenes().items() if one.like}
    assert coverage.drawn == len(faults) < 200
    assert {one.fault_of for one in faults.values()} == {None, 0, 1}
    assert {(one.fault, one.fault_of) for one in faults.values() if one.like is Name.Grammars} == {
        (one.fault, rank) for one in RANKS if one.fault for rank in (None, 0, 1)
    }
    assert with_drawn_faults(matrix)[0] == drawn


def test_all_faults_are_one_of_each_kind_in_each_row_that_captures() -> None:
    drawn, coverage = with_drawn_faults(whole(), whole=True)
    rows = {key[:2] for key, one in drawn.scenes().items() if one.like}
    assert coverage.drawn == 3 * len(rows) == 3 * 18 * 11


def test_cells_without_a_fault_are_all_there() -> None:
    matrix = whole()
    drawn, _ = with_drawn_faults(matrix)
    assert {key for key, one in matrix.scenes().items() if one.fault is None} <= drawn.scenes().keys()


def test_a_run_goes_on_behind_the_cells_that_it_has_kept(tmp_path: Path) -> None:
    matrix = Matrix(Device.Cpu, (small("LlamaForCausalLM"),), variants()[:1], RANKS[:3])
    file, (first, second, third) = incomplete(tmp_path / "cpu.json"), matrix.scenes()
    assert kept(file, matrix) == {}
    keep(file, Cell(*first, Outcome.Passed))
    keep(file, Cell(*second, Outcome.Failed))
    keep(file, Cell(*third, Outcome.Passed, met="rank 1; plain"))  # of another draw
    keep(file, Cell("Other", *first[1:], Outcome.Passed))
    done = kept(file, matrix)
    assert done == {first: Cell(*first, Outcome.Passed)}
    assert list(matrix.without(done).scenes()) == [second, third]


def test_cells_that_a_time_limit_leaves_out_are_no_failures() -> None:
    told: list[Cell] = []
    matrix = Matrix(Device.Cpu, (small("LlamaForCausalLM"),), variants()[:1], RANKS[:1])
    assert jobs.run(matrix, 1, lambda done, of, cell: told.append(cell), time.monotonic()) == told == []


def test_a_run_that_reaches_nothing_says_so_and_ends_0(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--subject", "Llama", "--policy", "Breakable / Full", "--scenario", Name.Plain, "--minutes", "0.0001"]
    assert main(words) == 0
    assert "3 of 3 cells not reached in 0.0001 minutes" in capsys.readouterr().out
