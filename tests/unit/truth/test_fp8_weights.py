"""A part of the matrix over FP8 weights: each form, each policy at least once."""

import pytest

from graphpod_policy import Device, Policy
from truth.axes import EAGER, Variant
from truth.cell import Outcome
from truth.matrix import Matrix, run
from truth.models import fp8_subjects
from truth.scenarios import SCENARIOS, Name

VARIANTS = (Variant(Policy.Breakable, Policy.Full), Variant(Policy.Piecewise, Policy.Breakable), EAGER)


@pytest.mark.parametrize(("index", "variant"), list(enumerate(VARIANTS)), ids=str)
def test_graphs_over_fp8_weights_give_what_eager_gives(index: int, variant: Variant) -> None:
    scenarios = tuple(one for one in SCENARIOS if one.name in (Name.Plain, Name.OutputLogprobs))
    matrix = Matrix(Device.Cpu, (fp8_subjects(Device.Cpu)[index],), (variant,), scenarios)
    found = run(matrix, lambda done, of, cell: None)
    assert [cell.summary for cell in found if cell.outcome is not Outcome.Passed] == []
    assert len(found) == len(scenarios)
    assert all(cell.tokens > 10 for cell in found)
