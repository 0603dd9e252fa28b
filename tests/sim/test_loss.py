"""What a cluster takes away: nodes, pods, engines that served."""

import json
import re
from collections.abc import Callable, Iterator

import pytest

from testbed import Cluster
from testbed.nodes.kwok import SIMULATED
from tests.sim.conftest import SimPlace

LONG = "4"
"""Seconds of a start during which nothing serves: no two looks, ours or the operator's, lie so far apart."""


@pytest.fixture
def lose_node(sim: Cluster) -> Iterator[Callable[[str], None]]:
    """`lose_node(name)`: its kubelet says nothing more, and the node controller has noticed. Back after the test."""
    lost: list[str] = []

    def lose(name: str) -> None:
        lost.append(name)
        sim.kubectl("annotate", "node", name, f"{SIMULATED}-")
        why = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        status = {"conditions": [{"type": "Ready", "status": "Unknown", **why}]}
        sim.kubectl("patch", "node", name, "--subresource=status", "-p", json.dumps({"status": status}))

    yield lose
    for name in lost:
        sim.kubectl("annotate", "node", name, f"{SIMULATED}=fake")


def test_a_lost_node_is_told_and_the_service_is_ready_again_on_another(
    place: SimPlace, eventually, lose_node: Callable[[str], None]
) -> None:
    place.bring_up(seconds=LONG)
    eventually(place.reached("Ready", "True", "Ready"))
    before = place.pod()
    lose_node(before["spec"]["nodeName"])
    eventually(lambda: place.condition("Ready")[0] == "False")

    def moved() -> bool:
        pods = place.pods()
        assert [pod["metadata"]["uid"] for pod in pods] != [before["metadata"]["uid"]], "the pod is still there"
        return len(pods) == 1

    eventually(moved)
    eventually(place.reached("Ready", "True", "Ready"))
    assert place.pod()["spec"]["nodeName"] != before["spec"]["nodeName"]


def test_an_engine_that_dies_while_it_serves_has_to_prove_its_graphs_again(place: SimPlace, eventually) -> None:
    place.bring_up(fault="dead:Ready:3s")
    eventually(place.reached("Ready", "True", "Ready"))
    message = eventually(place.reached("Ready", "False", "EngineDied"))
    assert re.search(r"kubectl -n \S+ logs \S+ --previous", message), message
    eventually(lambda: place.restarts() >= 1)
    # each run serves for two seconds, and the kubelet waits 10, 20 s before the third and the fourth
    eventually(place.reached("Ready", "True", "Ready"), timeout=60)


def test_an_engine_that_the_kernel_killed_is_told_with_its_restarts(place: SimPlace, eventually) -> None:
    place.bring_up(fault="killed:Capturing")
    eventually(place.reached("Ready", "False", "OutOfMemory"))
    eventually(lambda: place.restarts() >= 1)
    eventually(lambda: place.status()["lastFailure"]["restarts"] >= 1)
    failure = place.status()["lastFailure"]
    assert (failure["reason"], failure["exitCode"]) == ("OutOfMemory", 137)
    engine = place.pod()["status"]["containerStatuses"][0]
    assert engine["lastState"]["terminated"]["reason"] == "OOMKilled"


def test_a_deleted_service_leaves_nothing_once_its_engines_have_drained(place: SimPlace, eventually) -> None:
    place.bring_up()
    eventually(place.reached("Ready", "True", "Ready"))
    place.kubectl("delete", "gisvc", "demo")
    eventually(lambda: place.names("pods,deployments,services,configmaps,serviceaccounts") == [])
