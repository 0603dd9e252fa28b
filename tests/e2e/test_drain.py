"""Two replicas on two nodes, and a node that has to be emptied: whoever asks, notices nothing.

The tests of this file are one story in its order: spread, drained, without room, deleted.
"""

import json
from collections.abc import Iterator

import pytest
import yaml

from demo.answer import address, body
from demo.service import EXAMPLE, NAMESPACE
from testbed import Cluster
from tests.eventually import Eventually
from tests.places import LABEL, Place
from tests.traffic import Traffic, asking

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
    spec = yaml.safe_load(EXAMPLE.read_text())["spec"]
    spec["graph"] |= {"sizes": {"prefill": [48], "decode": [1, 2]}}  # a start in seconds
    spec["resources"]["requests"]["cpu"] = "500m"
    place.apply(NAME, **(spec | {"replicas": 2}))
    yield place
    for node in nodes(installed):
        installed.kubectl("uncordon", node)
    place.kubectl("delete", "gisvc", NAME, "--ignore-not-found", "--wait", timeout=60)


@pytest.fixture
def traffic(spread: Place, home: Place, eventually: Eventually) -> Iterator[Traffic]:
    """Clients that ask all through the test."""
    eventually(spread.reached("Ready", "True", "Ready", NAME), timeout=START)
    url = f"{address(spread.cluster, NAMESPACE, NAME)}/v1/chat/completions"
    question = body() | {"model": NAME, "max_tokens": 8}
    with asking(url, question) as traffic:
        eventually.evidence.append(traffic.told)
        eventually(lambda: traffic.answered() > 4, timeout=60)
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


def node_of_the_operator(cluster: Cluster) -> str:
    return cluster.kubectl(
        *("get", "pods", "-n", "graphpod-system", "-l", "app.kubernetes.io/name=graphpod-operator"),
        *("-o", "jsonpath={.items[0].spec.nodeName}"),
    )


def test_two_replicas_stand_on_two_nodes(spread: Place, home: Place, eventually: Eventually) -> None:
    eventually(spread.reached("Ready", "True", "Ready", NAME), timeout=START)
    assert sorted(standing(spread).values()) == nodes(spread.cluster)


def test_a_drained_node_costs_no_answer_and_its_pod_comes_up_on_the_other(
    spread: Place, traffic: Traffic, eventually: Eventually
) -> None:
    """The operator goes with its node as well, and tells the truth from the other."""
    drained = node_of_the_operator(spread.cluster)
    (other,) = set(nodes(spread.cluster)) - {drained}
    before = standing(spread)
    spread.cluster.kubectl("drain", drained, "--delete-emptydir-data", f"--timeout={DRAIN:.0f}s", timeout=DRAIN + 10)

    eventually(lambda: list(standing(spread).values()) == [other, other], timeout=START)
    eventually(spread.reached("Ready", "True", "Ready", NAME), timeout=60)
    assert len(set(before) & set(standing(spread))) == 1, "the pod on the other node is left alone"
    enough = traffic.answered() + 4
    eventually(lambda: traffic.answered() >= enough, timeout=60)
    assert traffic.failed == [], traffic.told()
    assert len(traffic.texts) == 1, "every pod gives the same greedy text"


def test_without_room_a_pod_waits_and_status_says_so_until_a_node_is_uncordoned(
    spread: Place, traffic: Traffic, eventually: Eventually
) -> None:
    """One node is still closed from before; now the other closes, too, and a pod on it is evicted."""
    (closed,) = set(nodes(spread.cluster)) - set(standing(spread).values())
    for node in nodes(spread.cluster):
        spread.cluster.kubectl("cordon", node)
    evict(spread, next(iter(standing(spread))))
    message = eventually(spread.reached("WorkloadAvailable", "False", "Unschedulable", NAME), timeout=60)
    assert "were unschedulable" in message
    assert spread.condition("Ready", NAME)[:2] == ("False", "Unschedulable")

    spread.cluster.kubectl("uncordon", closed)
    eventually(spread.reached("Ready", "True", "Ready", NAME), timeout=START)
    assert sorted(standing(spread).values()) == nodes(spread.cluster)
    enough = traffic.answered() + 4
    eventually(lambda: traffic.answered() >= enough, timeout=60)
    assert traffic.failed == [], traffic.told()


def test_deleting_it_leaves_nothing(spread: Place, home: Place, eventually: Eventually) -> None:
    spread.kubectl("delete", "gisvc", NAME, "--wait", timeout=60)
    eventually(lambda: not spread.kubectl("get", OWNED, "-l", f"{LABEL}={NAME}", "-o", "name").split(), timeout=90)


def evict(place: Place, pod: str) -> None:
    """What a drain does with one pod."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": place.namespace},
    }
    raw = f"/api/v1/namespaces/{place.namespace}/pods/{pod}/eviction"
    place.cluster.kubectl("create", "--raw", raw, "-f", "-", input=json.dumps(eviction))
