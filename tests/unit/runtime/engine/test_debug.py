"""Switches: what the environment may ask for, and that nothing it says is ignored."""

import pytest

from graphpod_policy import ExitCode, Phase
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.capture.debug import Acceptance, FaultKind, Mode, Switches


def test_an_empty_environment_asks_for_nothing() -> None:
    assert Switches.read({}) == Switches.read({"GRAPHPOD_FAULT": "", "GRAPHPOD_DEBUG": ""}) == Switches()


def test_a_fault_of_compiling_names_the_function() -> None:
    switches = Switches.read({"GRAPHPOD_FAULT": "compile:mlp"})
    assert switches.fires(FaultKind.Compile, "mlp")
    assert not switches.fires(FaultKind.Compile, "piece")


def test_several_faults_and_modes_are_separated_by_commas() -> None:
    switches = Switches.read(
        {"GRAPHPOD_FAULT": "capture:prefill:8, selfcheck:decode:2", "GRAPHPOD_DEBUG": "eager,addresses"}
    )
    assert switches.fires(FaultKind.Capture, Phase.Prefill, 8)
    assert switches.fires(FaultKind.SelfCheck, Phase.Decode, 2)
    assert not switches.fires(FaultKind.Capture, Phase.Decode, 2)
    assert switches.modes == {Mode.Eager, Mode.Addresses}


def test_acceptance_is_a_rate_and_perhaps_a_seed() -> None:
    assert Switches.read({"GRAPHPOD_ACCEPTANCE": "0.8"}).acceptance == Acceptance(0.8, 0)
    assert Switches.read({"GRAPHPOD_ACCEPTANCE": "1:7"}).acceptance == Acceptance(1.0, 7)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"GRAPHPOD_FAULT": "capture:decoding:2"}, "expected <kind>:<phase>:<size>"),
        ({"GRAPHPOD_FAULT": "capture:decode:2,"}, "expected <kind>:<phase>:<size>"),
        ({"GRAPHPOD_FAULT": "compile:prefill:8"}, "compile:<function> with function one of before, mlp, after, piece"),
        ({"GRAPHPOD_FAULT": "compile:half"}, "compile:<function>"),
        ({"GRAPHPOD_ACCEPTANCE": "1.5"}, "a rate from 0 to 1"),
        ({"GRAPHPOD_ACCEPTANCE": "nan"}, "a rate from 0 to 1"),
        ({"GRAPHPOD_ACCEPTANCE": "0.8:x"}, "expected <rate> or <rate>:<seed>"),
        ({"GRAPHPOD_DEBUG": "eager,slow"}, "'slow' is no debug mode; choose from eager"),
    ],
)
def test_a_word_that_is_not_understood_ends_the_start(environment: dict[str, str], words: str) -> None:
    with pytest.raises(StartFailure, match=words) as caught:
        Switches.read(environment)
    assert caught.value.code is ExitCode.SettingInvalid
