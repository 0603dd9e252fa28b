"""Which cells run where not all do: a seeded sample, and what a time limit leaves out."""

import time

import pytest

from graphpod_policy import Device
from truth import jobs
from truth.__main__ import main
from truth.axes import refused_by, variants
from truth.cell import Cell
from truth.choice import sample
from truth.engines import features_of
from truth.matrix import Key, Matrix
from truth.models import small, subjects
from truth.scenarios import SCENARIOS, Name

RANKS = tuple(one for one in SCENARIOS if one.over_ranks)
FAULTS = {one.name for one in RANKS if one.fault is not None}


def whole(device: Device = Device.Cpu) -> Matrix:
    return Matrix(device, subjects(device), variants(), RANKS, tensor=2)


@pytest.mark.parametrize("device", list(Device))
@pytest.mark.parametrize("count", [30, 100])
def test_a_sample_has_about_so_many_cells_which_no_rule_refuses(device: Device, count: int) -> None:
    chosen = sample(whole(device), count)
    assert chosen.chosen is not None
    assert count <= len(chosen) == len(chosen.chosen) < count + len(RANKS)
    assert all(refused_by(features_of(small("LlamaForCausalLM"), device), one.variant) is None for one in chosen.chosen)
    assert not {one.subject for one in chosen.chosen} & {"Phi3", "DeepseekV2", "Glm"}
    assert sample(whole(device), count) == chosen


def test_rows_of_a_sample_are_whole_with_one_fault_each() -> None:
    chosen = sample(whole(), 100)
    for subject, variant in {(one.subject, one.variant) for one in chosen.chosen or ()}:
        names = {one.name for one in RANKS if Key(subject, variant, one.name) in (chosen.chosen or ())}
        assert len(names & FAULTS) == 1
        assert names - FAULTS == {one.name for one in RANKS} - FAULTS


def test_cells_that_a_time_limit_leaves_out_are_no_failures() -> None:
    told: list[Cell] = []
    matrix = Matrix(Device.Cpu, (small("LlamaForCausalLM"),), variants()[:1], RANKS[:1])
    assert jobs.run(matrix, 1, lambda done, of, cell: told.append(cell), time.monotonic()) == told == []


def test_a_run_that_reaches_nothing_says_so_and_ends_0(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--subject", "Llama", "--policy", "Breakable / Full", "--scenario", Name.Plain, "--minutes", "0.0001"]
    assert main(words) == 0
    assert "3 of 3 cells not reached in 0.0001 minutes" in capsys.readouterr().out
