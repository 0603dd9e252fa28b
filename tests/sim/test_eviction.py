"""Evictions, as a drain asks for them: what a budget refuses, and what it must not hold up."""

import json

import pytest

from testbed.errors import TestbedError
from tests.places import Manifest
from tests.sim.conftest import SimPlace

ENDLESS = "600"  # s
LONG = "5"  # s
REFUSED = "would violate the pod's disruption budget"


def evict(place: SimPlace, pod: str) -> None:
    """What `kubectl drain` does to one pod. Raises TestbedError with the API server's words when a budget refuses."""
    asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": place.namespace}}
    path = f"/api/v1/namespaces/{place.namespace}/pods/{pod}/eviction"
    place.cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(asked))


def drained(place: SimPlace, pod: str) -> bool:
    """Whether the pod was evicted. One whose status changes meanwhile is refused in a budget's words, and a drain asks
    again.
    """
    try:
        evict(place, pod)
    except TestbedError as e:
        if REFUSED in str(e):
            return False
        raise
    return True


def policy(place: SimPlace) -> str:
    told: str = place.get("poddisruptionbudget", "demo")["spec"]["unhealthyPodEvictionPolicy"]
    return told


def failed(place: SimPlace) -> list[Manifest]:
    """The pods whose engine ended: as the kubelet tells it, before it is started again or after."""
    return [
        pod
        for pod in place.pods()
        for engine in pod["status"].get("containerStatuses", ())
        if "terminated" in engine["state"] or engine.get("lastState")
    ]


def test_contract_18_pods_that_capture_for_the_first_time_stay_and_pods_that_failed_a_start_hold_up_no_drain(
    place: SimPlace, eventually
) -> None:
    place.bring_up(seconds=ENDLESS, replicas=2)
    eventually(lambda: sum(pod["status"].get("phase") == "Running" for pod in place.pods()) == 2)
    eventually(lambda: place.get("poddisruptionbudget", "demo").get("status", {}).get("expectedPods") == 2)
    assert policy(place) == "IfHealthyBudget"
    with pytest.raises(TestbedError, match=REFUSED):
        evict(place, place.pods()[0]["metadata"]["name"])

    place.bring_up(fault="dead:Capturing", replicas=2)
    eventually(lambda: policy(place) == "AlwaysAllow")
    failing = failed(place)[0]["metadata"]
    eventually(lambda: drained(place, failing["name"]))
    eventually(lambda: failing["uid"] not in [pod["metadata"]["uid"] for pod in place.pods()])


def test_contract_18_of_two_pods_that_serve_one_may_go_at_a_time(place: SimPlace, eventually) -> None:
    place.bring_up(seconds=LONG, replicas=2)  # so long is one of them missed
    eventually(place.reached("Ready", "True", "Ready"))
    eventually(lambda: place.get("poddisruptionbudget", "demo").get("status", {}).get("disruptionsAllowed") == 1)
    first, second = (pod["metadata"]["name"] for pod in place.pods())
    eventually(lambda: drained(place, first))
    with pytest.raises(TestbedError, match=REFUSED):
        evict(place, second)
    eventually(place.reached("Ready", "True", "Ready"))
