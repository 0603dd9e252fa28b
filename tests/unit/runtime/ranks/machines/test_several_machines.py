"""A start over several machines: what is refused before any is waited for, and that two write what one rank writes."""

from pathlib import Path
from typing import NoReturn

import pytest

from graphpod_policy import EngineConfig, ExitCode, Policy
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.leader import LEADER
from graphpod_runtime.engine import process
from graphpod_runtime.engine.pulse import Pulse
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.roster import Roster
from graphpod_runtime.engine.ranks.start import runner_of
from tests.unit.runtime.ranks.conftest import GREEDY, alone, config
from tests.unit.runtime.ranks.machines.conftest import free_ports
from tests.unit.runtime.ranks.rank_forks import RankForks


def test_the_library_refuses_several_machines_by_name(two_machines: EngineConfig) -> None:
    with pytest.raises(
        StartFailure, match=r"several machines \(2\) are not built in Python; use graphpod-engine serve"
    ):
        runner_of(two_machines, lambda report: None)


def test_the_leaders_engine_says_what_is_wrong_before_it_waits_for_others(
    two_machines: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEADER, "")
    said = "an engine of 2 machines needs the address of the leader's: '' is not HOST:PORT"
    with pytest.raises(StartFailure, match=said) as refused:
        process._roster(two_machines, Pulse())
    assert refused.value.reason == "SettingInvalid"


@pytest.mark.parametrize("shape", [{"tensor": 3}, {"pipeline": 3}])
def test_no_rank_begins_where_the_model_has_no_part_for_each(two: Path, shape: dict[str, int]) -> None:
    def begun(meeting: Meeting, rank: int) -> NoReturn:
        raise AssertionError("a rank has begun")

    with pytest.raises(StartFailure) as refused:
        runner_of(config(two, Policy.Disabled, Policy.Disabled, **shape), lambda report: None, begun)
    assert refused.value.code is ExitCode.ParallelismInvalid


def test_a_port_that_is_taken_is_named(
    two_machines: EngineConfig, roster: Roster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEADER, str(roster.leader))
    with pytest.raises(StartFailure, match=f"--leader {roster.leader}: the port cannot be listened on"):
        process._roster(two_machines, Pulse())


def test_two_machines_write_what_one_rank_writes(ranks: RankForks, two: Path) -> None:
    """Each forks its own rank; they meet over TCP, and the worker ends when the leader lets it go."""
    settings = config(two, Policy.Breakable, Policy.Full, pipeline=2, nodes=2)
    found = ranks.answer(settings, GREEDY, port=free_ports())
    assert found.failure == ""
    assert [told.texts for told in found.told] == [told.texts for told in alone(two, GREEDY)]
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}
    assert (found.layers, found.machines, found.folders) == ((1, 1), [0], 0)
