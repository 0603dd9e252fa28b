"""A user's own object under a name we need: told, and left as it is, while the service comes and goes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from graphpod_operator.cache.service import Service
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from tests.api.operator.process import INSTALLED, USER, Operator
from tests.audit import Audit
from tests.places import LABEL, Place, service

Manifest = dict[str, Any]


def config_name(service_name: str) -> str:
    """The name that a plain service will want for its ConfigMap."""
    stored = {
        "metadata": {"name": service_name, "namespace": "x", "uid": "x", "resourceVersion": "1"},
        "spec": service(service_name)["spec"],
    }
    planned = desire(PlanInput(Service.of(stored), INSTALLED))
    assert isinstance(planned, Desired)
    return f"{service_name}-engine-{planned.config_hash}"


def theirs(kind: str) -> Manifest:
    """A user's object of a kind, under the name that the service called like the kind wants."""
    wanted = config_name(kind.lower()) if kind == "ConfigMap" else kind.lower()
    labels = {"app": "mine"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    rest: dict[str, Manifest] = {
        "ServiceAccount": {},
        "ConfigMap": {"data": {"mine": "yes"}},
        "Service": {"spec": {"ports": [{"port": 1234}], "selector": labels}},
        "Deployment": {"spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}},
    }
    return {
        "apiVersion": "apps/v1" if kind == "Deployment" else "v1",
        "kind": kind,
        "metadata": {"name": wanted},
        **rest[kind],
    }


def stored(place: Place, kind: str, name: str) -> Manifest:
    found = place.get(kind.lower(), name)
    if kind == "Deployment":
        assert found["status"].get("observedGeneration") == 1  # its controller has had its say
    return found


KINDS = ("ServiceAccount", "ConfigMap", "Service", "Deployment")


@pytest.mark.parametrize("labelled", [False, True], ids=["plain", "with our label"])
def test_a_users_object_of_our_name_is_told_and_left_alone(
    operator: Operator,
    place: Place,
    audit: Audit,
    eventually,
    settled: Callable[[], None],
    labelled: bool,
) -> None:
    """Four services, each with an object of another kind in its way."""
    manifests = {kind: theirs(kind) for kind in KINDS}
    if labelled:
        for kind, manifest in manifests.items():
            labels = {"app.kubernetes.io/managed-by": "graphpod", LABEL: kind.lower()}
            manifest["metadata"]["labels"] = labels
    names = {kind: manifest["metadata"]["name"] for kind, manifest in manifests.items()}
    place.kubectl("create", "-f", "-", input="\n".join(map(json.dumps, manifests.values())))
    before = {kind: eventually(lambda kind=kind: stored(place, kind, names[kind])) for kind in KINDS}
    mark = audit.mark()

    for kind in KINDS:
        place.apply(kind.lower())
    for kind in KINDS:
        message = eventually(place.reached("Accepted", "False", "NameCollision", kind.lower()))
        assert f"{kind} {place.namespace}/{names[kind]}" in message
        assert "rename the InferenceService" in message
        assert place.condition("Ready", kind.lower())[:2] == ("False", "NameCollision")
    settled()
    written = {write.resource for write in audit.since(mark).by(USER).of(place.namespace).writes()}
    assert written == {"inferenceservices", "events"}

    place.kubectl("delete", "gisvc", "--all")
    settled()
    assert {kind: place.get(kind.lower(), names[kind]) for kind in KINDS} == before


def test_a_users_claim_of_the_same_name_is_no_collision(place: Place, operator: Operator, eventually) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "demo"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    place.kubectl("create", "-f", "-", input=json.dumps(claim))
    before = place.get("pvc", "demo")
    place.apply()
    eventually(place.reached("Accepted", "True", "Accepted"))
    place.remove()
    eventually(lambda: place.names("deployments,services,configmaps,serviceaccounts") == [])
    assert place.get("pvc", "demo") == before


def test_a_service_goes_on_once_the_object_in_its_way_is_ours_no_more(
    place: Place, operator: Operator, eventually
) -> None:
    place.kubectl("create", "serviceaccount", "demo")
    place.apply()
    eventually(place.reached("Accepted", "False", "NameCollision"))
    place.drop("serviceaccount", "demo")
    place.label("gisvc", "demo", {"look": "again"})
    eventually(place.reached("Accepted", "True", "Accepted"))
