"""What the demo makes of objects it reads."""

import pytest

from demo.objects import GaveUp, conditions, rolled_out, wait


def deployment(**status: int) -> dict:
    return {"metadata": {"generation": 3}, "spec": {"replicas": 1}, "status": status}


def test_a_deployment_is_rolled_out_when_only_pods_of_its_present_template_run() -> None:
    done = {"observedGeneration": 3, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    assert rolled_out(deployment(**done))
    assert not rolled_out(deployment(**{**done, "observedGeneration": 2}))
    assert not rolled_out(deployment(**{**done, "replicas": 2})), "an old pod is still there"
    assert not rolled_out(deployment(observedGeneration=3))
    assert not rolled_out(None)


def test_a_condition_of_an_older_generation_does_not_count() -> None:
    ready = {"type": "Ready", "status": "True", "observedGeneration": 1}
    accepted = {"type": "Accepted", "status": "True", "observedGeneration": 2}
    found = {"metadata": {"generation": 2}, "status": {"conditions": [ready, accepted]}}
    assert list(conditions(found)) == ["Accepted"]
    assert conditions({"metadata": {"generation": 2}}) == {}
    assert conditions(None) == {}


def test_whoever_gives_up_brings_the_evidence() -> None:
    with pytest.raises(GaveUp, match="pod x ready: not within 0 s\nthe log said no"):
        wait("pod x ready", lambda: False, 0, lambda: "the log said no")
