"""What a user adds to the pods: it gets there, causes no writes, and what the server refuses is told in its words."""

import json
from typing import Any

import pytest

from testbed import Cluster
from testbed.errors import TestbedError
from tests.api.operator.process import USER
from tests.places import Place, PodSecurity, service

ADDED = {
    "labels": {"team": "search"},
    "annotations": {"stub.graphpod.dev/dead": "true"},
    "env": [
        {"name": "PLAIN", "value": "1"},
        {"name": "EMPTY"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token", "optional": True}}},
    ],
    "volumes": [
        {"name": "scratch", "emptyDir": {"sizeLimit": "2048Mi"}},
        {"name": "bare", "emptyDir": {}},
        {"name": "ca", "configMap": {"name": "company-ca"}},
        {"name": "disk", "hostPath": {"path": "/mnt"}},
        {"name": "secrets", "csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}},
    ],
    "volumeMounts": [
        {"name": "scratch", "mountPath": "/var/scratch", "subPath": "engine"},
        {"name": "ca", "mountPath": "/etc/ssl/company", "readOnly": True},
    ],
}


def test_what_is_added_reaches_the_pod_and_stays_without_a_write(
    crd_cluster: Cluster, operator, make_place, eventually, settled, audit
):
    place = make_place(crd_cluster, PodSecurity.Privileged)  # `restricted` knows no hostPath
    place.apply(podTemplate=ADDED)
    pod = eventually(lambda: (place.pods() or [None])[0])
    container = pod["spec"]["containers"][0]
    assert pod["metadata"]["labels"]["team"] == "search"
    assert pod["metadata"]["annotations"]["stub.graphpod.dev/dead"] == "true"
    assert {"PLAIN", "EMPTY", "NODE", "CORES", "TOKEN"} <= {variable["name"] for variable in container["env"]}
    assert {"scratch", "bare", "ca", "disk", "secrets"} <= {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {"/var/scratch", "/etc/ssl/company"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    eventually(lambda: place.status().get("replicas") == 1)
    settled()
    mark = audit.mark()
    place.label("gisvc", "demo", {"touched": "yes"})
    settled()
    assert audit.since(mark).by(USER).of(place.namespace).writes() == ()
    assert operator.said("the API server changed fields we applied", place) == []


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ({"annotations": {"bad key!": "x"}}, 'spec.template.annotations: Invalid value: "bad key!"'),
        ({"volumes": [{"name": "v", "emptyDir": {}, "nfs": {}}]}, "may not specify more than 1 volume type"),
        ({"volumes": [{"name": "v", "emptyDir": {"size": "1Gi"}}]}, "emptyDir.size: field not declared in schema"),
        ({"env": [{"name": "A", "valueFrom": {}}]}, "valueFrom: Invalid value"),
    ],
    ids=["annotation", "two sources", "unknown field", "no value"],
)
def test_what_the_server_refuses_is_told_in_its_words_until_it_is_mended(
    operator, place: Place, eventually, added: dict[str, Any], words: str
) -> None:
    place.apply(podTemplate=added)
    message = eventually(place.reached("Accepted", "False", "PodTemplateInvalid"))
    assert words in message
    assert place.condition("Stalled")[:2] == ("True", "PodTemplateInvalid")
    place.kubectl("patch", "gisvc", "demo", "--type=merge", "-p", json.dumps({"spec": {"podTemplate": None}}))
    eventually(place.reached("Accepted", "True", "Accepted"))


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        ({"labels": {"graphpod.dev/team": "x"}}, "spec.podTemplate.labels: Invalid value"),
        ({"labels": {"team": "a b"}}, "spec.podTemplate.labels.team in body should match"),
        ({"annotations": {"graphpod.dev/config-hash": "x"}}, "spec.podTemplate.annotations: Invalid value"),
        ({"env": [{"name": "HOME", "value": "/"}]}, "podTemplate.env: POD_NAME, POD_NAMESPACE, POD_UID, HOME"),
        ({"env": [{"name": "A"}, {"name": "A"}]}, "spec.podTemplate.env[1]: Duplicate value"),
        ({"env": [{"name": "A", "value": "1", "valueFrom": {"x": 1}}]}, "a variable has either value or valueFrom"),
        ({"volumes": [{"name": "shm", "emptyDir": {}}]}, "podTemplate.volumes: config, model, tmp, shm"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "each must name one of podTemplate.volumes"),
        ({"volumeMounts": [{"name": "v", "mountPath": "var/x"}]}, "mountPath in body should match"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/model/x"}]}, "must neither hold nor lie in"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/etc"}]}, "must neither hold nor lie in"),
    ],
)
def test_a_name_of_the_operators_is_refused_at_the_door(drafts: Place, added: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TestbedError) as refused:
        drafts.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(service(podTemplate=added)))
    assert sentence in str(refused.value)
