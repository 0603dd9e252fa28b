"""Everything in the table of faults, in every scenario it is about."""

import pytest

from tests.sim.chaos.arena import Arena
from tests.sim.chaos.faults import FAULTS, Fault
from tests.sim.chaos.scenarios import Scenario

pytestmark = pytest.mark.chaos
RUNS = [
    pytest.param(fault, scenario, id=f"{fault.name}-{scenario.name}", marks=() if quick else pytest.mark.slow)
    for fault in FAULTS
    for scenario in fault.scenarios
    for quick in [scenario in fault.quick]
]


@pytest.mark.parametrize(("fault", "scenario"), RUNS)
def test_whatever_breaks_all_ends_in_order(arena: Arena, fault: Fault, scenario: Scenario) -> None:
    arena.run(scenario, fault.name, fault.inject, fault.extra, within=fault.within)
