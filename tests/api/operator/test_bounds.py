"""What one tenant may write, and what the others see of it: nothing. The operator is the same process before and after,
the service of another namespace goes on, and the object that breaks a bound is told of by its name.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.operator.process import USER, Operator
from tests.audit import Audit
from tests.places import LABEL, Place, service

DEEP = 1200
MEBIBYTE = 1 << 20
CONFIG_MAPS = 120
GROWTH = 96 * MEBIBYTE
"""Of the operator's memory at its peak, over that of an idle one: a page and the objects of it."""
STORED = {"app.kubernetes.io/managed-by": "graphpod", LABEL: "demo"}

FIELDS = {
    "volume": lambda inner: {"podTemplate": {"volumes": [{"name": "x", "configMap": inner}]}},
    "variable": lambda inner: {"podTemplate": {"env": [{"name": "X", "valueFrom": inner}]}},
    "affinity": lambda inner: {"placement": {"affinity": {"nodeAffinity": inner}}},
}


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def create(place: Place, text: str) -> None:
    """Create an object as somebody does who wants no client's help."""
    place.kubectl("create", "--validate=false", "-f", "-", input=text)


def written(manifest: dict[str, Any], inner: str) -> str:
    """A manifest whose null is a JSON text of one's own."""
    return json.dumps(manifest).replace("null", inner)


def refused(place: Place, name: str) -> Callable[[], str]:
    """A check for `eventually`: the message of SpecTooLarge, read without the object that no reader here would take."""

    def check() -> str:
        told = place.kubectl("get", "gisvc", name, "-o", "jsonpath={.status.conditions}")
        accepted = next((row for row in json.loads(told or "[]") if row["type"] == "Accepted"), None)
        assert accepted is not None, told
        assert (accepted["status"], accepted["reason"]) == ("False", "SpecTooLarge"), accepted
        return str(accepted["message"])

    return check


def memory(operator: Operator, what: str) -> int:
    """VmRSS or VmHWM (the most so far) of the process, in bytes."""
    assert operator.process is not None
    lines = Path(f"/proc/{operator.process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{what}:"))) * 1024


def restart(operator: Operator, eventually) -> None:
    """The next operator lists all that is there."""
    assert operator.stop() == 0
    operator.start()
    eventually(operator.idle, timeout=120)


@pytest.fixture
def other(operator: Operator, make_place, crd_cluster, eventually) -> Place:
    """The namespace of another tenant, with nothing in it yet."""
    place: Place = make_place(crd_cluster)
    return place


def goes_on(other: Place, name: str, eventually) -> None:
    """A service of the other tenant is made and followed."""
    other.apply(name)
    eventually(other.reached("WorkloadAvailable", "False", "Starting", name), timeout=60)
    eventually(lambda: len(other.pods(name)) == 1)


@pytest.mark.parametrize("levels", [DEEP, 900, 300, 40])
def test_a_deep_object_is_told_of_and_stops_nobody(
    operator: Operator, place: Place, other: Place, eventually, levels: int
) -> None:
    """Made while the operator runs, and there when the next one starts."""
    pid = operator.process.pid if operator.process else 0
    for field, spec in FIELDS.items():
        create(place, written(service(f"deep-{field}", **spec(None)), nested(levels)))
    goes_on(other, "meanwhile", eventually)
    assert operator.process is not None
    assert (operator.process.pid, operator.process.poll()) == (pid, None)

    restart(operator, eventually)
    goes_on(other, "after", eventually)
    for field in FIELDS:
        message = eventually(refused(place, f"deep-{field}"), timeout=60)
        assert "levels deep" in message
        series = f'graphpod_operator_object_skipped{{kind="InferenceService",name="deep-{field}",namespace='
        assert series in operator.ask("/metrics")[1]
    assert place.names("deployment") == []

    place.kubectl("delete", "gisvc", "--all")
    create(place, json.dumps(service("deep-volume")))
    eventually(place.reached("WorkloadAvailable", "False", "Starting", "deep-volume"), timeout=60)
    assert f'namespace="{place.namespace}"' not in operator.ask("/metrics")[1]


def test_a_deep_memory_is_told_of_and_stops_nobody(operator: Operator, place: Place, other: Place, eventually) -> None:
    place.apply()
    revision = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 9}
    create(place, written({**revision, "metadata": {"name": "deep", "labels": STORED}, "data": None}, nested(DEEP)))
    texts = {"madeFrom": "x", "workload.json": "{}", "engine.json": "[" * DEEP}
    create(place, json.dumps({**revision, "metadata": {"name": "text", "labels": STORED}, "data": texts}))
    restart(operator, eventually)
    goes_on(other, "after", eventually)
    eventually(place.reached("Accepted", "True", "Accepted"))
    assert '{kind="ControllerRevision",name="deep",' in operator.ask("/metrics")[1]
    place.kubectl("delete", "controllerrevision", "deep", "text")


@pytest.fixture
def crowded(place: Place) -> Iterator[Place]:
    """It goes with all that is in it, which every later start of an operator would have to read."""
    yield place
    place.delete()


def test_large_objects_are_told_of_and_cost_no_memory(
    operator: Operator, crowded: Place, other: Place, audit: Audit, eventually
) -> None:
    """Eight services of a megabyte, and 120 ConfigMaps of one with our labels."""
    restart(operator, eventually)
    before = memory(operator, "VmRSS")
    keys = json.dumps({f"k{number}": "x" * 480 for number in range(2000)})
    for number in range(8):
        create(crowded, written(service(f"large-{number}", **FIELDS["volume"](None)), keys))
    big = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "x" * 1_000_000}}
    for number in range(CONFIG_MAPS):
        crowded.post("configmap", {**big, "metadata": {"name": f"big-{number}", "labels": STORED}})
    goes_on(other, "meanwhile", eventually)
    assert memory(operator, "VmHWM") - before < GROWTH

    restart(operator, eventually)
    goes_on(other, "after", eventually)
    assert memory(operator, "VmHWM") - before < GROWTH
    for number in range(8):
        message = eventually(refused(crowded, f"large-{number}"), timeout=120)
        assert "KiB, more than 512" in message
    assert 'object_skipped{kind="ConfigMap",name="big-' in operator.ask("/metrics")[1]
    writes = audit.since().by(USER).of(crowded.namespace).writes()
    assert {one.kind for one in writes} <= {"inferenceservices/status", "events"}
    assert len(writes) <= 8 * 6


def test_a_forged_status_is_written_anew(applied: Place, eventually) -> None:
    """By somebody who may write it: half of it lost, and a count that is none."""
    whole = eventually(lambda: applied.status().get("graph") and applied.status())
    graph = {**whole["graph"], "captured": "n/a", "decisions": []}
    lost = {"op": "remove", "path": "/status"}
    for forged in ({**whole, "graph": graph, "conditions": []}, {**whole, "graph": graph}, None):
        patch = json.dumps([{"op": "replace", "path": "/status", "value": forged} if forged else lost])
        applied.kubectl("patch", "gisvc", "demo", "--subresource=status", "--type=json", "-p", patch)
        eventually(lambda: (applied.status().get("graph") or {}).get("captured") == "0/26")
        eventually(applied.reached("WorkloadAvailable", "False", "Starting"))
    assert applied.status()["graph"] == whole["graph"]


def test_an_object_of_kserves_service_of_the_same_name_is_a_collision(
    operator: Operator, place: Place, other: Place, eventually
) -> None:
    """Its kind has our kind's name; its group tells them apart."""
    owner = {"kind": "InferenceService", "name": "demo", "uid": "11111111-2222-3333-4444-555555555555"}
    owners = [{"apiVersion": "serving.kserve.io/v1beta1", **owner, "controller": True}]
    theirs = {"metadata": {"name": "demo", "ownerReferences": owners}, "spec": {"ports": [{"port": 80}]}}
    place.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Service", **theirs}))
    place.apply()
    message = eventually(place.reached("Accepted", "False", "NameCollision"))
    assert (
        "Service " + place.namespace + "/demo exists and is controlled by InferenceService.serving.kserve.io demo"
        in message
    )
    goes_on(other, "meanwhile", eventually)
    assert place.get("service", "demo")["metadata"]["ownerReferences"][0]["apiVersion"] == owners[0]["apiVersion"]
