"""Contract 12: the policy of a service, enforced. Who may ask is answered, nobody else is, and an operator that is
locked out says so, without calling the service anything but unknown.

The tests of this file are one story in its order.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from demo.ground import Image
from demo.service import EXAMPLE, NAMESPACE
from testbed import Cluster
from testbed.nodes.policy import enforce
from tests.eventually import Eventually
from tests.places import Place

NAME = "guarded"
START = 240.0  # s for an engine to start beside others on two cores
MONITORING = "monitoring"  # the chart's default
ASK = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=float(sys.argv[2])).status)"
PORTS = (":8000/v1/models", ":8001/metrics")
LET_IN, KEPT_OUT = 30.0, 2.0  # s to wait for an answer that has to come, on a busy machine, and for one that must not


@pytest.fixture(scope="module")
def guarded(installed: Cluster) -> Iterator[Place]:
    """A service of one replica with a start of seconds."""
    place = Place(installed, NAMESPACE)
    spec = yaml.safe_load(EXAMPLE.read_text())["spec"]
    spec["graph"] |= {"sizes": {"prefill": [48], "decode": [1]}}
    spec["resources"]["requests"]["cpu"] = "500m"
    place.apply(NAME, **spec)
    yield place
    place.kubectl("delete", "gisvc", NAME, "--ignore-not-found", "--wait", timeout=60)


@pytest.fixture(scope="module")
def clients(installed: Cluster, loaded: dict[str, Image]) -> Iterator[dict[str, Place]]:
    """A pod in the service's namespace, one in monitoring's, one in a stranger's."""
    places = {name: Place(installed, name) for name in (NAMESPACE, MONITORING, "strangers")}
    for name, place in places.items():
        if name != NAMESPACE:
            place.create()
        # before that a bare pod is refused, and nobody asks again for it
        place.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
        place.kubectl("create", "-f", "-", input=json.dumps(client(loaded["operator"].reference)))
    for place in places.values():
        place.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=90s", timeout=100)
    yield places
    for name, place in places.items():
        place.kubectl("delete", "pod", "client", "--now", "--wait=false")
        if name != NAMESPACE:
            place.delete()


def client(image: str) -> dict[str, Any]:
    container = {
        "name": "client",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", "import time; time.sleep(3600)"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": security, "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec}


def answers(place: Place, address: str, patience: float) -> bool:
    """Whether a client there gets an answer, or none within so many seconds."""
    script = f"try:\n    exec({ASK!r})\nexcept OSError as error:\n    print(error)"
    said = place.kubectl("exec", "client", "--", "python3", "-c", script, f"http://{address}", str(patience)).strip()
    assert said in ("200", "timed out", "<urlopen error timed out>"), said
    return said == "200"


def answered(clients: dict[str, Place], ip: str, wanted: dict[str, list[bool]]) -> dict[str, list[bool]]:
    """Who gets an answer from which of PORTS; who is to get one has the time for it."""
    return {
        name: [
            answers(clients[name], ip + port, LET_IN if comes else KEPT_OUT)
            for port, comes in zip(PORTS, row, strict=True)
        ]
        for name, row in wanted.items()
    }


def pod(place: Place) -> dict[str, Any]:
    (found,) = place.pods(NAME)
    return dict(found)


def test_what_the_policy_lets_in_is_answered_and_nothing_else(
    guarded: Place, home: Place, clients: dict[str, Place], eventually: Eventually
) -> None:
    eventually(guarded.reached("Ready", "True", "Ready", NAME), timeout=START)
    serving = pod(guarded)
    ip = serving["status"]["podIP"]
    everybody = {name: [True, True] for name in clients}
    assert answered(clients, ip, everybody) == everybody, "nothing is enforced yet"
    assert serving["metadata"]["name"] in enforce(guarded.cluster)
    few = {NAMESPACE: [True, False], MONITORING: [False, True], "strangers": [False, False]}
    assert answered(clients, ip, few) == few
    assert guarded.condition("Ready", NAME)[:2] == ("True", "Ready"), "the kubelet's probes are let in"


def test_an_operator_that_is_locked_out_says_unknown_and_names_the_policy(
    guarded: Place, home: Place, eventually: Eventually
) -> None:
    """Somebody's hand on the policy, while the service is paused, and a pod that starts under it."""
    guarded.kubectl("annotate", "gisvc", NAME, "graphpod.dev/paused=true")
    # services and their objects are watched apart: before it knows of the pause the operator would put the policy back
    eventually(guarded.reached("Accepted", "True", "Paused", NAME))
    nobody = [
        {"op": "replace", "path": "/spec/ingress/1/from", "value": [{"podSelector": {"matchLabels": {"no": "1"}}}]}
    ]
    guarded.kubectl("patch", "networkpolicy", NAME, "--type=json", "-p", json.dumps(nobody))
    before = pod(guarded)["metadata"]["name"]
    guarded.kubectl("delete", "pod", before, "--now", timeout=90)

    def started() -> bool:
        replacements = {one["metadata"]["name"] for one in guarded.pods(NAME)} - {before}
        return replacements != set() and replacements <= enforce(guarded.cluster)

    eventually(started, timeout=60)
    told = eventually(guarded.reached("GraphsCaptured", "Unknown", "EngineUnreachable", NAME), timeout=START)
    assert "NetworkPolicy" in told
    assert guarded.condition("Ready", NAME)[0] != "True"

    guarded.kubectl("annotate", "gisvc", NAME, "graphpod.dev/paused-")
    eventually(lambda: '"no"' not in json.dumps(guarded.get("networkpolicy", NAME)["spec"]["ingress"][1]["from"]))
    enforce(guarded.cluster)
    eventually(guarded.reached("Ready", "True", "Ready", NAME), timeout=START)
