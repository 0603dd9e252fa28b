"""Contract 15: which ends of an engine count as deaths in a capture, and what is remembered of them."""

import pytest

from graphpod_operator.api.names import CAPTURE_FAILURES_ANNOTATION
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.capture_failure_annotation import died, recall
from graphpod_policy import ExitCode
from tests.unit.operator.objects import pod


def test_one_death_has_one_name_however_often_it_is_looked_at() -> None:
    ended = {"terminated": {"exitCode": 13, "reason": "Error", "message": "CaptureOutOfMemory: prefill"}}
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": ""}}
    looks = [
        pod(restarts=0, engine={"state": ended}),
        pod(restarts=0, engine={"state": waits, "lastState": ended}),
        pod(restarts=1, engine={"lastState": ended}),
    ]
    assert {died(Pod.of(look)) for look in looks} == {"uid-demo-abc-1/0"}


@pytest.mark.parametrize("code", sorted(set(ExitCode) - {12, 13, 14, 19}))
def test_other_ends_are_no_deaths_in_a_capture(code: ExitCode) -> None:
    ended = Pod.of(pod(engine={"state": {"terminated": {"exitCode": int(code), "reason": "Error"}}}))
    assert died(ended) is None


@pytest.mark.parametrize(
    "scribble",
    ["", "no JSON", "[]", "3", '{"of": "r"}', '{"of":"r","adopt":"","starts":3,"over":[],"steps":[],"runs":""}'],
)
def test_what_cannot_be_read_is_not_remembered(scribble: str) -> None:
    assert recall(scribble, "r", None).text() is None


def test_the_memory_is_beside_the_template() -> None:
    assert Child.of(
        Resource.Deployment,
        {"metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "1",
                      "annotations": {CAPTURE_FAILURES_ANNOTATION: "x"}}},
    ).capture_failures == "x"  # fmt: skip
