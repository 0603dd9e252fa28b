"""The matrix over ranks: a small part of it passes, what does not divide is refused."""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_policy import Device, EngineConfig, Policy
from graphpod_runtime.engine.ranks import others, process
from graphpod_runtime.engine.ranks.meeting import Meeting
from tests.forked import Forked, Streams, forked
from truth.axes import Variant
from truth.cell import Cell, Outcome
from truth.engines import features_of
from truth.matrix import Matrix, run
from truth.models import small, subjects
from truth.ranks import divisible, refused_over_ranks
from truth.scenarios import SCENARIOS, Name

TWO = 2
GRAPHS = Variant(Policy.Breakable, Policy.Full)


def cells(*names: Name) -> list[Cell]:
    chosen = tuple(scenario for scenario in SCENARIOS if scenario.name in names)
    matrix = Matrix(Device.Cpu, (small("LlamaForCausalLM"),), (GRAPHS,), chosen, tensor=TWO)
    return run(matrix, lambda done, of, cell: None)


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second rank is a fork of this process, which has imported the engine."""

    def started(path: Path, meeting: Meeting, rank: int) -> Forked:
        config = EngineConfig.parse(path.read_bytes())
        with Path(os.devnull).open() as nothing:
            streams = Streams(nothing.fileno(), 2, 2)
            return forked(lambda: process.run(config, meeting, rank, process.following), os.environ, streams)

    monkeypatch.setattr(others, "started", started)


@pytest.mark.usefixtures("forked_ranks")
def test_a_seeded_sample_over_two_ranks_passes() -> None:
    without_faults = [one.name for one in SCENARIOS if not one.own_passes and one.fault is None]
    found = cells(*random.Random(21).sample(without_faults, 2), Name.Grammars, Name.HostTier)
    assert [cell.summary for cell in found if cell.outcome is not Outcome.Passed] == []
    assert all(cell.tokens > 10 for cell in found)


@pytest.mark.usefixtures("forked_ranks")
def test_a_grammar_may_leave_any_token_of_a_vocabulary_that_ranks_divide() -> None:
    scenario = next(one for one in SCENARIOS if one.name is Name.Grammars)
    eager = Variant(Policy.Disabled, Policy.Disabled)
    (cell,) = run(Matrix(Device.Cpu, (small("Gemma3ForCausalLM"),), (eager,), (scenario,), tensor=TWO), lambda *_: None)
    assert cell.outcome is Outcome.Passed, cell.summary


@pytest.mark.parametrize("tensor", [2, 4])
def test_subjects_divide_or_are_refused_by_name(tensor: int) -> None:
    found = {
        one.name: refused_over_ranks(divisible(one, tensor), features_of(one, Device.Cpu, tensor=tensor))
        for one in subjects(Device.Cpu)
    }
    assert {name for name, reason in found.items() if reason is not None} == set()
    llama = small("LlamaForCausalLM")
    features = features_of(llama, Device.Cpu, tensor=tensor)
    assert refused_over_ranks(llama, features) == "ParallelismInvalid (spec.parallelism)"
    sleeping = replace(features, sleep=True)
    assert refused_over_ranks(divisible(llama, tensor), sleeping) == "FeatureNotBuilt (spec.engine.sleep)"
