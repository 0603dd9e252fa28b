"""What a user can write wrong: the API server refuses it with a sentence that names the field."""

import json
from typing import Any

import pytest

from graphpod_operator.api import Spec
from testbed import Cluster
from testbed.errors import TestbedError
from tests.places import Place, service


def create(place: Place, manifest: dict[str, Any]) -> None:
    place.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(manifest))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"model": {"uri": "http://x/y"}}, "spec.model.uri must begin with one of pvc://, hf://, s3://, oci://"),
        ({"model": {"uri": "pvc://claim/../etc"}}, "spec.model.uri with pvc:// must read pvc://CLAIM/FOLDER"),
        ({"model": {"uri": "pvc://" + "a" * 600}}, "spec.model.uri: Too long"),
        ({"model": {}}, "spec.model.uri: Required value"),
        ({"replicas": -1}, "spec.replicas in body should be greater than or equal to 0"),
        ({"replicas": 1001}, "spec.replicas in body should be less than or equal to 1000"),
        ({"graph": {"decode": "Piecewise"}}, 'spec.graph.decode: Unsupported value: "Piecewise"'),
        ({"graph": {"prefill": "piecewise"}}, 'spec.graph.prefill: Unsupported value: "piecewise"'),
        ({"graph": {"sizes": {"prefill": [8, 4]}}}, "spec.graph.sizes.prefill: Invalid value: sizes must be in asc"),
        ({"graph": {"sizes": {"decode": [4, 4]}}}, "spec.graph.sizes.decode: Invalid value: sizes must not repeat"),
        ({"graph": {"sizes": {"decode": [0, 4]}}}, "spec.graph.sizes.decode[0] in body should be greater than"),
        ({"graph": {"sizes": {"prefill": list(range(1, 130))}}}, "spec.graph.sizes.prefill: Too many: 129"),
        ({"engine": {"maxModelLen": 8}}, "spec.engine.maxModelLen in body should be greater than or equal to 16"),
        ({"engine": {"kvCacheMemory": "lots"}}, "spec.engine.kvCacheMemory in body should match"),
        ({"engine": {"kvCacheMemory": 0}}, "spec.engine.kvCacheMemory: Invalid value: 0: must be above 0"),
        ({"engine": {"kvCacheMemory": "0Gi"}}, 'spec.engine.kvCacheMemory: Invalid value: "0Gi": must be above 0'),
        ({"engine": {"image": "a b"}}, "spec.engine.image in body should match"),
        ({"resources": {"limits": {"cpu": "-1"}}}, "spec.resources.limits.cpu in body should match"),
        ({"resources": {"limits": {"cpu": -1}}}, "spec.resources.limits[cpu]: Invalid value: -1: must not be negative"),
        ({"placement": {"tolerations": [{}]}}, "a toleration without a key needs operator Exists"),
        (
            {"placement": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}},
            "a toleration with operator Exists takes no value",
        ),
        (
            {"placement": {"tolerations": [{"key": "a", "tolerationSeconds": 5}]}},
            "tolerationSeconds needs effect NoExecute",
        ),
        ({"rollout": {"strategy": "Recreate"}}, 'spec.rollout.strategy: Unsupported value: "Recreate"'),
    ],
)
def test_the_api_server_refuses_a_wrong_field_and_names_it(drafts: Place, spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TestbedError) as refused:
        create(drafts, service(**spec))
    assert sentence in str(refused.value)


@pytest.mark.parametrize("name", ["9demo", "a.b", "a" * 41])
def test_the_api_server_refuses_a_name_that_cannot_name_children(drafts: Place, name: str) -> None:
    with pytest.raises(TestbedError, match=r"metadata\.name must"):
        create(drafts, service(name))


def test_an_unknown_field_is_refused_by_name(drafts: Place) -> None:
    with pytest.raises(TestbedError, match=r'unknown field "spec\.graphs"'):
        create(drafts, service(graphs={}))


def test_the_longest_allowed_name_and_ladder_are_accepted(drafts: Place) -> None:
    create(drafts, service("a" * 40, graph={"sizes": {"prefill": list(range(1, 129)), "decode": list(range(1, 129))}}))


def test_the_defaults_of_schema_and_models_are_the_same(place: Place) -> None:
    place.apply("plain", suspend=True)
    stored = place.get("gisvc", "plain")["spec"]
    assert Spec.model_validate(stored) == Spec.model_validate({"model": stored["model"], "suspend": True})


def test_kubectl_explain_is_the_manual(crd_cluster: Cluster) -> None:
    told = crd_cluster.kubectl("explain", "gisvc.spec.graph.decode")
    assert "Default: Auto (Full, else" in told


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"engine": {"quantization": "Fp8"}}, "spec.engine.quantization"),
        ({"engine": {"speculative": {"method": "Ngram"}}}, "spec.engine.speculative"),
        ({"engine": {"hostCache": {"size": "1Gi"}}}, "spec.engine.hostCache"),
        ({"engine": {"lora": [{"name": "a", "uri": "pvc://c/a"}]}}, "spec.engine.lora"),
        ({"parallelism": {"tensor": 2}}, "spec.parallelism.tensor"),
        ({"graph": {"prefill": "Piecewise"}}, "spec.graph.prefill"),
        ({"model": {"uri": "hf://org/name@main"}}, "spec.model.uri"),
        ({"role": "Prefill"}, "spec.role"),
    ],
)
def test_a_feature_that_is_not_built_is_told_by_its_field_and_nothing_is_made(
    operator, place: Place, eventually, spec: dict[str, Any], words: str
) -> None:
    place.apply(**spec)
    message = eventually(place.reached("Accepted", "False", "FeatureNotBuilt"))
    assert words in message
    assert place.condition("Ready")[:2] == ("False", "FeatureNotBuilt")
    assert place.condition("Stalled")[0] == "True"
    assert place.names("deployments,services,configmaps,serviceaccounts") == []
