"""What a user writes: the examples are accepted, and what is wrong is refused with a sentence that names the field."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.errors import TestbedError
from tests.api.operator.door import Door
from tests.places import URI, Place, service

EXAMPLES = Path(__file__).parents[3] / "examples"
OF_A_GATEWAY = EXAMPLES / "gateway"
"""Objects of others that go with a service."""
SERVICES = sorted(path for path in EXAMPLES.rglob("*.yaml") if path.parent != OF_A_GATEWAY)

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": {"uri": "http://x/y"}}, "spec.model.uri must begin with one of pvc://, hf://, s3://, gs://, az://"),
    ({"model": {"uri": "pvc://claim/../etc"}}, "spec.model.uri with pvc:// must read pvc://CLAIM/FOLDER"),
    ({"model": {"uri": "pvc://" + "a" * 600}}, "spec.model.uri: Too long"),
    ({"model": {}}, "spec.model.uri: Required value"),
    ({"model": {"uri": "pvc://c", "name": "a b"}}, "spec.model.name in body should match"),
    ({"model": {"uri": "pvc://c", "cache": {"size": "1Gi"}}}, "spec.model.cache is for downloads"),
    ({"model": {"uri": "hf://o/n", "cache": {}}}, "model.cache needs exactly one of claim"),
    ({"model": {"uri": "hf://o/n", "cache": {"claim": "c", "size": 1}}}, "model.cache needs exactly one of claim"),
    (
        {"model": {"uri": "hf://o/n", "cache": {"claim": "c", "accessMode": "ReadWriteMany"}}},
        "storageClassName and accessMode go with size",
    ),
    ({"engine": {"maxModelLen": 8}}, "spec.engine.maxModelLen in body should be greater than or equal to 16"),
    ({"engine": {"maxBatch": "many"}}, 'spec.engine.maxBatch: Invalid value: "string"'),
    ({"engine": {"prefillChunk": 1}}, "spec.engine.prefillChunk in body should be greater than or equal to 16"),
    ({"engine": {"kvCacheMemory": "lots"}}, "spec.engine.kvCacheMemory in body should match"),
    ({"engine": {"kvCacheMemory": 0}}, "spec.engine.kvCacheMemory: Invalid value: 0: must be from 1Mi to 64Ti"),
    ({"engine": {"kvCacheMemory": "0Gi"}}, 'spec.engine.kvCacheMemory: Invalid value: "0Gi": must be from 1Mi to 64Ti'),
    ({"engine": {"image": "a b"}}, "spec.engine.image in body should match"),
    ({"engine": {"dtype": "int8"}}, 'spec.engine.dtype: Unsupported value: "int8"'),
    ({"engine": {"attention": "flash"}}, 'spec.engine.attention: Unsupported value: "flash"'),
    ({"engine": {"deterministic": "yes"}}, 'spec.engine.deterministic: Invalid value: "string"'),
    ({"engine": {"hostCache": {}}}, "spec.engine.hostCache.size: Required value"),
    (
        {"engine": {"hostCache": {"size": "1Gi", "file": {"path": "/kv", "size": "1Gi"}}}},
        "engine.hostCache.file.path: must lie in a folder of podTemplate.volumeMounts that is not read-only",
    ),
    ({"engine": {"cpuOffload": {"size": -1}}}, "spec.engine.cpuOffload.size in body should be greater than or equal"),
    ({"engine": {"speculative": {"method": "Magic"}}}, 'spec.engine.speculative.method: Unsupported value: "Magic"'),
    (
        {"engine": {"speculative": {"method": "Mtp", "draftTokens": 8}}},
        "engine.speculative.draftTokens needs topk above 1",
    ),
    (
        {"engine": {"speculative": {"method": "Mtp", "steps": 6, "topk": 16}}},
        "engine.speculative: (steps - 1) * topk is at most 62",
    ),
    ({"engine": {"speculative": {"method": "Eagle3"}}}, "engine.speculative.draftModel is for DraftModel, Eagle"),
    (
        {"engine": {"speculative": {"method": "Ngram", "draftModel": "pvc://draft"}}},
        "engine.speculative.draftModel is for DraftModel, Eagle",
    ),
    ({"engine": {"lora": [{"name": "a", "uri": "pvc://a"}] * 2}}, "spec.engine.lora[1]: Duplicate value"),
    ({"engine": {"imagePullSecrets": [{"name": ""}]}}, "spec.engine.imagePullSecrets[0].name in body should be at lea"),
    ({"parallelism": {"tensor": 0}}, "spec.parallelism.tensor in body should be greater than or equal to 1"),
    ({"parallelism": {"allToAll": "DeepEp"}}, "parallelism.allToAll and expertRebalancing need parallelism.expert"),
    ({"role": "prefill"}, 'spec.role: Unsupported value: "prefill"'),
    ({"graph": {"decode": "Piecewise"}}, 'spec.graph.decode: Unsupported value: "Piecewise"'),
    ({"graph": {"prefill": "piecewise"}}, 'spec.graph.prefill: Unsupported value: "piecewise"'),
    ({"graph": {"sizes": {"prefill": [8, 4]}}}, "spec.graph.sizes.prefill: Invalid value: sizes must be in ascending"),
    ({"graph": {"sizes": {"decode": [4, 4]}}}, "spec.graph.sizes.decode: Invalid value: sizes must not repeat"),
    ({"graph": {"sizes": {"decode": [0, 4]}}}, "spec.graph.sizes.decode[0] in body should be greater than"),
    ({"graph": {"sizes": {"decode": []}}}, "spec.graph.sizes.decode in body should have at least 1 items"),
    ({"graph": {"sizes": {"prefill": list(range(1, 130))}}}, "spec.graph.sizes.prefill: Too many: 129"),
    ({"graph": {"sizes": [1, 2]}}, 'spec.graph.sizes: Invalid value: "array"'),
    ({"graph": {"budget": {"time": "soon"}}}, "spec.graph.budget.time in body should match"),
    ({"graph": {"retries": -1}}, "spec.graph.retries in body should be greater than or equal to 0"),
    ({"replicas": -1}, "spec.replicas in body should be greater than or equal to 0"),
    ({"replicas": 1001}, "spec.replicas in body should be less than or equal to 1000"),
    ({"autoscaling": {"max": 2}}, "spec.autoscaling.target: Required value"),
    ({"autoscaling": {"min": 3, "max": 2, "target": 1}}, "autoscaling.min must not be above autoscaling.max"),
    (
        {"autoscaling": {"min": 0, "max": 2, "target": 1}},
        "spec.autoscaling.min in body should be greater than or equal to 1",
    ),
    ({"resources": {"limits": {"cpu": "-1"}}}, "spec.resources.limits.cpu in body should match"),
    ({"resources": {"limits": {"cpu": -1}}}, "spec.resources.limits.cpu in body should be greater than or equal to 0"),
    ({"resources": {"limits": {"a" * 318: 1}}}, "spec.resources.limits: Invalid value: keys must have at most 317"),
    ({"resources": {"scratch": 1}}, "spec.resources.scratch: Invalid value: 1: must be from 1Mi to 64Ti"),
    ({"resources": {"limits": {"memory": "1m"}}}, "memory and ephemeral-storage must be from 1Mi to 64Ti"),
    ({"resources": {"limits": {"memory": "1P"}}}, "memory and ephemeral-storage must be from 1Mi to 64Ti"),
    ({"graph": {"budget": {"time": "0s"}}}, 'spec.graph.budget.time: Invalid value: "0s": must be above 0'),
    ({"engine": {"startTimeout": "0s"}}, 'spec.engine.startTimeout: Invalid value: "0s": must be from 1m to 168h'),
    ({"engine": {"image": "HTTP://///:::"}}, "spec.engine.image in body should match"),
    ({"placement": {"topologySpread": [{"topologyKey": "a b"}]}}, "topologyKey in body should match"),
    ({"networking": {"route": {"parentRefs": [{"name": "G G"}]}}}, "parentRefs[0].name in body should match"),
    (
        {"networking": {"route": {"parentRefs": [{"name": "g"}], "hostnames": ["a" * 64 + ".com"]}}},
        "hostnames[0] in body should match",
    ),
    (
        {
            "podTemplate": {
                "volumes": [{"name": "v", "emptyDir": {}}],
                "volumeMounts": [{"name": "v", "mountPath": "/usr"}],
            }
        },
        "must not cover /bin, /boot, /lib, /lib64, /opt, /proc, /sbin, /sys, /usr",
    ),
    ({"resources": {"sharedMemory": 0}}, "spec.resources.sharedMemory: Invalid value: 0: must be from 1Mi to 64Ti"),
    ({"placement": {"tolerations": [{}]}}, "a toleration without a key needs operator Exists"),
    (
        {"placement": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}},
        "a toleration with operator Exists takes no value",
    ),
    ({"placement": {"tolerations": [{"key": "a", "tolerationSeconds": 5}]}}, "tolerationSeconds needs effect NoExec"),
    ({"placement": {"nodeSelector": {"a": "b c"}}}, "spec.placement.nodeSelector.a in body should match"),
    ({"placement": {"topologySpread": [{"maxSkew": 2}]}}, "spec.placement.topologySpread[0].topologyKey: Required"),
    ({"rollout": {"strategy": "Recreate"}}, 'spec.rollout.strategy: Unsupported value: "Recreate"'),
    ({"rollout": {"maxUnavailable": 2}}, "rollout.maxUnavailable needs rollout.strategy Replace"),
    ({"rollout": {"drainSeconds": 3601}}, "spec.rollout.drainSeconds in body should be less than or equal to 3600"),
    ({"updates": "Sometimes"}, 'spec.updates: Unsupported value: "Sometimes"'),
    ({"suspend": "true"}, 'spec.suspend: Invalid value: "string"'),
    ({"slo": {"ttft": "300"}}, "spec.slo.ttft in body should match"),
    ({"monitoring": True}, 'spec.monitoring: Invalid value: "boolean"'),
]


@pytest.mark.parametrize(("spec", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_the_api_server_refuses_a_wrong_field_and_names_it(door: Door, spec: dict[str, Any], sentence: str) -> None:
    judged = door.judge({"model": {"uri": URI}, **spec})
    assert judged.refusal is not None
    assert sentence in judged.refusal


@pytest.mark.parametrize("name", ["9demo", "a.b", "a" * 41])
def test_the_api_server_refuses_a_name_that_cannot_name_children(door: Door, name: str) -> None:
    assert "metadata.name must" in (door.judge({"model": {"uri": URI}}, name=name).refusal or "")


@pytest.mark.parametrize(
    ("unknown", "named"),
    [
        ({"graphs": {}}, "spec.graphs"),
        ({"graph": {"prefil": "Auto"}}, "spec.graph.prefil"),
        ({"model": {"uri": URI, "path": "/"}}, "spec.model.path"),
        ({"podTemplate": {"env": [{"name": "A", "values": "1"}]}}, "spec.podTemplate.env[0].values"),
    ],
)
def test_an_unknown_field_is_refused_or_warned_of_by_name(door: Door, unknown: dict[str, Any], named: str) -> None:
    """kubectl asks for the refusal; a client that asks for nothing gets the warning, and never silence."""
    spec = {"model": {"uri": URI}, **unknown}
    assert f'unknown field "{named}"' in (door.judge(spec).refusal or "")
    lenient = door.judge(spec, strict=False)
    assert lenient.refusal is None
    assert any(named in warning for warning in lenient.warnings)


def test_kubectl_refuses_an_unknown_field_before_it_is_sent(drafts: Place) -> None:
    with pytest.raises(TestbedError, match=r'unknown field "spec\.graphs"'):
        drafts.kubectl("apply", "-f", "-", input=json.dumps(service(graphs={})))


def test_the_longest_allowed_name_and_ladder_are_accepted(door: Door) -> None:
    longest = list(range(1, 129))
    spec = {"model": {"uri": URI}, "graph": {"sizes": {"prefill": longest, "decode": longest}}}
    assert door.judge(spec, name="a" * 40).refusal is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"engine": {"quantization": "Gguf"}}, "spec.engine.quantization"),
        ({"engine": {"speculative": {"method": "Ngram", "topk": 2}}}, "spec.engine.speculative.topk"),
        ({"engine": {"cpuOffload": {"size": "1Gi"}}}, "spec.engine.cpuOffload"),
        ({"engine": {"lora": [{"name": "a", "uri": "pvc://c/a"}]}}, "spec.engine.lora"),
        (
            {"parallelism": {"tensor": 2}, "engine": {"sleep": True}},
            "sleep with spec.parallelism.tensor 2",
        ),
        ({"graph": {"prefill": "Full"}}, "spec.graph.prefill"),
        ({"resources": {"limits": {"nvidia.com/gpu": 2}}}, "spec.resources.limits[nvidia.com/gpu]"),
        ({"resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}, "spec.resources.limits[nvidia.com/mig-1g.10gb]"),
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


@pytest.mark.parametrize("example", SERVICES, ids=lambda path: path.stem)
def test_every_example_is_accepted_by_the_server(door: Door, example: Path) -> None:
    judged = door.judge(yaml.safe_load(example.read_text())["spec"])
    assert judged.refusal is None
    assert judged.warnings == ()
