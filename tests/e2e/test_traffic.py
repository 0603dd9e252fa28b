"""Two replicas on two nodes, and clients that ask and read streams all through what happens to them (contract 17): not
one notices anything.

The tests of this file are one story in its order: spread, rolled out, drained without room elsewhere, deleted.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from demo.answer import address, body
from demo.chart import NAMESPACE as SYSTEM
from demo.chart import SELECTOR
from demo.service import EXAMPLE, NAMESPACE
from testbed import Cluster
from testbed.reach import takes_connections
from tests.eventually import Eventually
from tests.places import LABEL, Manifest, Place
from tests.traffic import Client, Traffic, asking

CGROUPS = Path("/sys/fs/cgroup")
NAME = "spread"
START = 240.0  # s for an engine to start beside others on two cores
DRAIN = 120.0  # s; the pods' grace is 45
OWNED = (
    "deployments,replicasets,pods,services,endpointslices,configmaps,serviceaccounts,controllerrevisions,"
    "poddisruptionbudgets"
)


@pytest.fixture(scope="module")
def spread(installed: Cluster) -> Iterator[Place]:
    """The demo's service with two replicas, of which a node has room for both; all nodes open again at the end."""
    place = Place(installed, NAMESPACE)
    place.apply(NAME, **spec())
    yield place
    for node in nodes(installed):
        installed.kubectl("uncordon", node)
    place.kubectl("delete", "gisvc", NAME, "--ignore-not-found", "--wait", timeout=60)


def spec(edition: str = "first", strategy: str = "Surge") -> Manifest:
    """The service's; another edition is another pod template."""
    found: Manifest = yaml.safe_load(EXAMPLE.read_text())["spec"]
    found["graph"] |= {"sizes": {"prefill": [16], "decode": [1, 4]}}  # a start in seconds
    found["resources"]["requests"]["cpu"] = "500m"
    template = {"annotations": {"example.com/edition": edition}}
    return found | {"replicas": 2, "rollout": {"strategy": strategy}, "podTemplate": template}


@pytest.fixture
def traffic(spread: Place, home: Place, eventually: Eventually) -> Iterator[Traffic]:
    """Clients that ask all through the test."""
    eventually(spread.reached("Ready", "True", "Ready", NAME), timeout=START)
    url = f"{address(spread.cluster, NAMESPACE, NAME)}/v1/chat/completions"
    eventually(lambda: takes_connections(url))
    question = body() | {"model": NAME, "max_tokens": 4}
    with asking(url, question) as traffic:
        eventually.evidence.append(traffic.told)
        eventually(lambda: traffic.answered() > 0, timeout=60)
        yield traffic
    print(traffic.told())


def nodes(cluster: Cluster) -> list[str]:
    return [name.partition("/")[2] for name in cluster.kubectl("get", "nodes", "-o", "name").split()]


def standing(place: Place) -> dict[str, str]:
    """Pods that are ready, with their nodes."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in place.pods(NAME)
        if ("Ready", "True") in {(one["type"], one["status"]) for one in pod["status"].get("conditions", [])}
    }


def operator(cluster: Cluster) -> Manifest:
    """Its one pod."""
    (pod,) = json.loads(cluster.kubectl("get", "pods", "-n", SYSTEM, "-l", SELECTOR, "-o", "json"))["items"]
    return dict(pod)


def kill_operator(cluster: Cluster) -> None:
    """kill -9; the kubelet starts its next container."""
    uid = operator(cluster)["metadata"]["uid"]
    pids = [pid for file in CGROUPS.glob(f"**/pod{uid}/*/cgroup.procs") for pid in file.read_text().split()]
    (pid,) = {int(pid) for pid in pids if b"graphpod" in Path(f"/proc/{pid}/cmdline").read_bytes()}
    os.kill(pid, signal.SIGKILL)


def unharmed(traffic: Traffic, eventually: Eventually) -> None:
    """Everything asked until now was answered, and with the same greedy text by every pod."""
    enough = traffic.answered() + 1
    eventually(lambda: traffic.answered() >= enough, timeout=60)
    assert traffic.failed == [], traffic.told()
    assert [len(traffic.texts(client)) for client in Client] == [1, 1, 1], traffic.questions


def test_two_replicas_stand_on_two_nodes(spread: Place, home: Place, eventually: Eventually) -> None:
    eventually(spread.reached("Ready", "True", "Ready", NAME), timeout=START)
    assert sorted(standing(spread).values()) == nodes(spread.cluster)


@pytest.mark.parametrize("strategy", ["Replace", pytest.param("Surge", marks=pytest.mark.slow)])
def test_a_rollout_in_which_the_operator_is_killed_costs_no_answer(
    spread: Place, traffic: Traffic, eventually: Eventually, strategy: str
) -> None:
    """Contract 17: each pod goes when it has ended what it was asked; without an operator the rollout goes on."""
    before = standing(spread)
    restarts = operator(spread.cluster)["status"]["containerStatuses"][0]["restartCount"]
    spread.apply(NAME, **spec(strategy, strategy))
    eventually(lambda: not {pod["metadata"]["name"] for pod in spread.pods(NAME)} <= set(before))
    kill_operator(spread.cluster)

    eventually(lambda: len(standing(spread)) == 2 and not set(before) & set(standing(spread)), timeout=2 * START)
    eventually(spread.reached("Ready", "True", "Ready", NAME), timeout=60)
    assert operator(spread.cluster)["status"]["containerStatuses"][0]["restartCount"] == restarts + 1
    unharmed(traffic, eventually)


def test_a_drained_node_costs_no_answer_and_status_says_what_its_pod_waits_for_until_the_other_is_uncordoned(
    spread: Place, traffic: Traffic, eventually: Eventually
) -> None:
    """The pods of the service go first; then the operator goes with its node as well, and tells the truth from the
    other.
    """
    drained = operator(spread.cluster)["spec"]["nodeName"]
    (other,) = set(nodes(spread.cluster)) - {drained}
    before = standing(spread)
    spread.cluster.kubectl("cordon", other)
    drain(spread.cluster, drained, f"--pod-selector={LABEL}={NAME}")
    message = eventually(spread.reached("WorkloadAvailable", "False", "Unschedulable", NAME), timeout=60)
    assert "were unschedulable" in message
    assert spread.condition("Ready", NAME)[:2] == ("False", "Unschedulable")

    spread.cluster.kubectl("uncordon", other)
    drain(spread.cluster, drained)
    eventually(lambda: list(standing(spread).values()) == [other, other], timeout=START)
    eventually(spread.reached("Ready", "True", "Ready", NAME), timeout=60)
    assert operator(spread.cluster)["spec"]["nodeName"] == other
    assert len(set(before) & set(standing(spread))) == 1, "the pod on the other node is left alone"
    unharmed(traffic, eventually)


def test_deleting_it_leaves_nothing(spread: Place, home: Place, eventually: Eventually) -> None:
    spread.kubectl("delete", "gisvc", NAME, "--wait", timeout=60)
    eventually(lambda: not spread.kubectl("get", OWNED, "-l", f"{LABEL}={NAME}", "-o", "name").split(), timeout=90)


def drain(cluster: Cluster, node: str, *which: str) -> None:
    cluster.kubectl(*("drain", node, "--delete-emptydir-data", f"--timeout={DRAIN:.0f}s"), *which, timeout=DRAIN + 10)
