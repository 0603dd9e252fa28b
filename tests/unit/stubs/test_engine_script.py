"""What a kubelet sees of a story."""

import json

import pytest

from stubs.engine.script import PROBE_SECONDS, script
from stubs.engine.start import tell
from tests.unit.stubs.test_engine_story import CONFIG

CONTAINER = {
    "startupProbe": {"periodSeconds": 5, "failureThreshold": 12},
    "readinessProbe": {"periodSeconds": 2, "failureThreshold": 3},
    "livenessProbe": {"periodSeconds": 10, "failureThreshold": 6},
}


def scripted(fault: str, seconds: float = 10.0):
    return json.loads(script(tell(CONFIG, fault, seconds), 0.5, CONTAINER))


def test_a_pod_is_ready_after_its_engine_is():
    assert scripted("") == {"drain": 0.5, "ready": pytest.approx(10.0 + PROBE_SECONDS)}


def test_an_engine_that_ends_carries_code_reason_and_message():
    assert scripted("load")["end"] == {
        "at": pytest.approx(2.3),
        "code": 11,
        "reason": "Error",
        "message": "ModelInvalid: /model/m holds no *.safetensors; correct spec.model.uri",
    }


def test_the_kernel_s_kill_is_told_as_the_kubelet_tells_it():
    end = scripted("killed:Capturing")["end"]
    assert (end["code"], end["reason"], end["message"]) == (137, "OOMKilled", "")


def test_a_start_that_outlasts_its_probe_is_ended_by_the_kubelet():
    for told in (scripted("silent:Loading"), scripted("", seconds=70.0)):
        assert "ready" not in told
        assert told["end"] == {"at": 60.0, "code": 0, "reason": "Completed", "message": ""}


def test_one_that_falls_silent_later_turns_unready_then_is_ended():
    told = scripted("silent:Ready:5s")
    assert told["ready"] == pytest.approx(10.3)
    assert told["unready"] == pytest.approx(21.0)
    assert told["end"]["at"] == pytest.approx(75.0)
    assert told["end"]["code"] == 0


def test_one_that_dies_before_its_silence_is_noticed_ends_by_itself():
    told = scripted("silent:Ready:5s,dead:Ready:6s")
    assert told["end"]["code"] == 15
    assert told["end"]["at"] == pytest.approx(16.0)
    assert "unready" not in told


def test_a_liar_s_pod_is_ready():
    assert scripted("lying:ready")["ready"] < 10.0
    assert "end" not in scripted("lying:ready")
