"""A start over several machines: what is refused before any is waited for, and that two write what one rank writes."""

from pathlib import Path
from typing import NoReturn

import pytest

from graphpod_policy import EngineConfig, ExitCode, Policy
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.leader import LEADER, Leader
from graphpod_runtime.engine import process
from graphpod_runtime.engine.pulse import Pulse
from graphpod_runtime.engine.ranks.meeting import Meeting, ports_behind
from graphpod_runtime.engine.ranks.roster import listening
from graphpod_runtime.engine.ranks.start import runner_of
from tests.ports import free_ports
from tests.unit.runtime.ranks.conftest import GREEDY, alone, config
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


@pytest.mark.parametrize("behind", [0, 1, 2, 3])
def test_a_port_that_is_taken_is_named_before_others_are_waited_for(
    two_machines: EngineConfig, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """Those behind the leader's own are used only later: another engine may begin at one of them."""
    leader = Leader("127.0.0.1", free_ports())
    taken = leader.port + behind
    monkeypatch.setenv(LEADER, str(leader))
    with listening(taken), pytest.raises(StartFailure) as refused:
        process._roster(two_machines, Pulse())
    said = f"--leader {leader}: port {taken} cannot be listened on: Address already in use"
    assert refused.value.message == f"{said}; choose a port with 3 free ones behind it"
    assert refused.value.reason == "SettingInvalid"


def test_ports_of_ranks_on_the_leaders_machine_are_not_used() -> None:
    assert ports_behind(Leader("host", 29500), 4, 2) == [29501, 29502, 29504, 29505]


def test_two_machines_write_what_one_rank_writes(ranks: RankForks, two: Path) -> None:
    """Each forks its own rank; they meet over TCP, and the worker ends when the leader lets it go."""
    settings = config(two, Policy.Breakable, Policy.Full, pipeline=2, nodes=2)
    found = ranks.answer(settings, GREEDY, port=free_ports())
    assert found.failure == ""
    assert [told.texts for told in found.told] == [told.texts for told in alone(two, GREEDY)]
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}
    assert (found.layers, found.machines, found.folders) == ((1, 1), [0], 0)
