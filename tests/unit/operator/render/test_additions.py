"""What a user adds to the pods: which names are the operator's, and which refusals are about it."""

from typing import Any

import pytest

from graphpod_operator.api.names import ENGINE_TYPE
from graphpod_operator.api.pod import OWNED_ENV, OWNED_LABELS, OWNED_PATHS, OWNED_PREFIX, OWNED_VOLUMES
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.refused import Refused
from graphpod_operator.plan.writes import not_applied
from tests.unit.operator.objects import outcome, planned


def template(**spec: Any) -> dict[str, Any]:
    body = next(child.body for child in planned(**spec).children if child.resource is Resource.Deployment)
    found: dict[str, Any] = body["spec"]["template"]
    return found


def test_every_name_the_operator_gives_a_pod_is_denied_to_the_user() -> None:
    pod = template(resources={"limits": {"cpu": "2"}})
    container = pod["spec"]["containers"][0]
    labels = {key for key in pod["metadata"]["labels"] if not key.startswith(OWNED_PREFIX)}
    assert labels <= {*OWNED_LABELS, ENGINE_TYPE[0]}
    assert all(key.startswith(OWNED_PREFIX) for key in pod["metadata"]["annotations"])
    assert {variable["name"] for variable in container["env"]} == set(OWNED_ENV)
    assert {volume["name"] for volume in pod["spec"]["volumes"]} <= set(OWNED_VOLUMES)
    assert {mount["mountPath"] for mount in container["volumeMounts"]} <= set(OWNED_PATHS)


def test_a_picker_reads_from_a_pods_label_whose_metrics_it_has_and_a_user_may_say_otherwise() -> None:
    assert template()["metadata"]["labels"][ENGINE_TYPE[0]] == "graphpod"
    user = {"labels": {ENGINE_TYPE[0]: "vllm"}}
    assert template(podTemplate=user)["metadata"]["labels"][ENGINE_TYPE[0]] == "vllm"


def test_an_annotation_of_another_domain_passes() -> None:
    annotations = template(podTemplate={"annotations": {"stub.graphpod.dev/dead": "true"}})["metadata"]["annotations"]
    assert annotations["stub.graphpod.dev/dead"] == "true"


VOLUME = {"name": "v", "emptyDir": {}}


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ({"labels": {"graphpod.dev/x": "y"}}, "podTemplate.labels: graphpod.dev/"),
        ({"labels": {"pod-template-hash": "y"}}, "podTemplate.labels"),
        ({"annotations": {"graphpod.dev/config-hash": "y"}}, "podTemplate.annotations"),
        ({"env": [{"name": "HOME", "value": "/"}]}, "podTemplate.env"),
        ({"env": [{"name": "A", "value": "/", "valueFrom": {}}]}, "either value or valueFrom"),
        ({"env": [{"name": "A"}, {"name": "A"}]}, "two items with name 'A'"),
        ({"volumes": [{"name": "tmp", "emptyDir": {}}]}, "podTemplate.volumes"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "each must name one of podTemplate.volumes"),
        *(
            ({"volumes": [VOLUME], "volumeMounts": [{"name": "v", "mountPath": path}]}, "must neither hold nor lie in")
            for path in ("/tmp", "/model/x", "/etc", "/dev", "/dev/shm/x")
        ),
    ],
)
def test_a_name_of_the_operators_is_refused_by_field(pod: dict[str, Any], words: str) -> None:
    refused = outcome(podTemplate=pod)
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.PodTemplateInvalid
    assert words in refused.what


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('Deployment.apps "d" is invalid: spec.template.annotations: Invalid value: "bad key!"', "PodTemplateInvalid"),
        ('… is invalid: spec.template.spec.containers[0].env[7].valueFrom: Invalid value: ""', "PodTemplateInvalid"),
        ('… typed patch object (…): .spec.template.spec.volumes[name="x"].foo: not declared', "PodTemplateInvalid"),
        ('… typed patch object (…): .spec.template.spec.containers[name="engine"].env[name="X"]', "PodTemplateInvalid"),
        ("… is forbidden: exceeded quota", "ApplyRefused"),
    ],
)
def test_the_servers_refusal_is_laid_on_the_pod_template_only_where_that_stands(said: str, reason: str) -> None:
    refused = not_applied(said)
    assert refused.reason is Reason[reason]
    assert refused.what == said


@pytest.mark.parametrize("name", ["LWS_LEADER_ADDRESS", "GRAPHPOD_LEADER", "GRAPHPOD_GROUP_KEY", "HOME"])
def test_a_variable_that_leads_a_group_elsewhere_is_refused_by_its_name(name: str) -> None:
    """Its controller and the operator set it: whoever has set it already sends a pod to another leader."""
    found = outcome(podTemplate={"env": [{"name": name, "value": "stranger:8100"}]})
    assert isinstance(found, Refused)
    assert found.reason is Reason.PodTemplateInvalid
    assert found.what.startswith("spec.podTemplate.env[0].name: podTemplate.env: ")
    assert ("LWS_…" if name.startswith("LWS_") else name) in found.what
