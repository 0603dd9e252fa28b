"""A service that streams its weights: pods with a Secret and small files, no claim, no Job; what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.explain.explanation import explain
from graphpod_operator.explain.manifest import read
from graphpod_operator.install.allow_lists import AllowLists
from graphpod_operator.install.installation import Installation
from graphpod_operator.install.network_access import Access
from graphpod_operator.intent.asked_downloads import downloads
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.download_policy import DNS
from graphpod_policy import STREAM_HOSTS, EngineConfig, ModelFacts, ModelPath, StreamConfig, can_start, resolve
from graphpod_policy.node import NodeFacts
from graphpod_policy.start.footprint import stream_bytes, weights_bytes
from graphpod_policy.start.not_streamed import not_streamed
from graphpod_sources.credentials import SECRETS
from graphpod_sources.stores.choice import DOCKER, TOKENS
from graphpod_sources.stores.objects import OWN
from tests.unit.operator.downloads import downloading
from tests.unit.operator.objects import IMAGES, NAMESPACE, inference_service
from tests.unit.operator.world import World

STREAM = {"uri": "s3://models/tiny", "stream": True, "secretRef": {"name": "bucket"}}
ADMIN = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "graphpod-system"}}}
ACCESS = Access.read(json.dumps({"admin": [ADMIN]}))
SHAPE = json.loads(Path("benchmarks/shapes/qwen3-8b/config.json").read_text())


def outcome(model: dict[str, Any] = STREAM, installed: Installation | None = None, **spec: Any) -> Desired | Refused:
    body = inference_service(**spec)
    body["spec"]["model"] = model
    return desire(PlanInput(Service.of(body), installed or Installation(IMAGES, access=ACCESS)))


def wanted(**given: Any) -> Desired:
    found = outcome(**given)
    assert isinstance(found, Desired)
    return found


def pod(found: Desired) -> dict[str, Any]:
    spec: dict[str, Any] = found.workload["template"]["spec"]
    return spec


def config(found: Desired) -> EngineConfig:
    body, *_ = [child.body for child in found.children if child.resource is Resource.ConfigMap]
    return EngineConfig.parse(body["data"]["engine.json"].encode())


def test_the_pod_has_the_secret_and_no_claim() -> None:
    found = pod(wanted())
    (engine,) = found["containers"]
    volumes = {one["name"]: one for one in found["volumes"]}
    assert volumes["model"] == {"name": "model", "emptyDir": {"sizeLimit": "2Gi"}}
    assert volumes["model-credentials"]["secret"] == {"secretName": "bucket"}
    assert not any("persistentVolumeClaim" in one for one in found["volumes"])
    mounts = {one["name"]: one for one in engine["volumeMounts"]}
    assert mounts["model"] == {"name": "model", "mountPath": "/model"}
    assert mounts["model-credentials"] == {
        "name": "model-credentials", "mountPath": "/model/.credentials", "readOnly": True,
    }  # fmt: skip
    assert downloads("demo", {"model": STREAM}) == ()
    assert wanted().weights is None


def test_without_a_secret_none_is_mounted() -> None:
    found = pod(wanted(model={"uri": "hf://org/tiny@main", "stream": True}))
    assert not any("secret" in one for one in found["volumes"])


def test_other_services_have_neither() -> None:
    found = wanted(model={"uri": "pvc://weights/tiny"})
    assert config(found).model.stream is None
    assert [one["name"] for one in pod(found)["volumes"]] == ["config", "model", "tmp", "shm"]
    assert b"stream" not in config(found).canonical()


async def test_the_list_of_hosts_follows_the_chart_while_pods_still_stream_and_a_download_runs() -> None:
    """What runs mounts it, whatever the spec wants by now; it changes, and comes back where somebody deletes it."""
    world, place = World(), (Resource.ConfigMap, NAMESPACE, "demo-source-hosts")
    await downloading(world, model=STREAM)
    await world.reconcile()
    assert world.cluster.objects[place]["data"] == {"hosts.json": '["*"]'}
    del world.cluster.objects[place]
    world.reconciler = world.make_reconciler(allowed=AllowLists(source_hosts=("*.amazonaws.com",)))
    await world.relist()
    await world.edit(model={"uri": "s3://models/tiny", "cache": {"claim": "shared"}})
    await world.reconcile()
    assert "model-credentials" in json.dumps(world.cluster.objects[Resource.Deployment, NAMESPACE, "demo"])
    assert world.cluster.objects[place]["data"] == {"hosts.json": '["*.amazonaws.com"]'}


@pytest.mark.parametrize("updates", ["Pinned", "Auto"])
def test_a_changed_list_of_hosts_changes_what_pods_read_at_their_next_start_and_restarts_none(updates: str) -> None:
    """Contract 35: what the installer allows is no part of the pods' template, nor of the hashed configuration."""

    def made(*hosts: str) -> Desired:
        installed = Installation(IMAGES, allowed=AllowLists(source_hosts=hosts))
        return wanted(installed=installed, updates=updates)

    one, other = made("*"), made("*.amazonaws.com", "mirror.example")
    assert config(one).model.stream == StreamConfig("s3://models/tiny", STREAM_HOSTS)
    assert (one.revision, one.template, one.config_hash) == (other.revision, other.template, other.config_hash)
    changed = [(old.body, new.body) for old, new in zip(one.children, other.children, strict=True) if old != new]
    ((before, after),) = changed
    assert before["metadata"]["name"] == after["metadata"]["name"] == "demo-source-hosts"
    assert [body["data"] for body in (before, after)] == [
        {"hosts.json": '["*"]'},
        {"hosts.json": '["*.amazonaws.com", "mirror.example"]'},
    ]
    (volume,) = [volume for volume in pod(other)["volumes"] if volume["name"] == "source-hosts"]
    assert volume["configMap"] == {"name": "demo-source-hosts"}
    (mount,) = [one for one in pod(other)["containers"][0]["volumeMounts"] if one["name"] == "source-hosts"]
    assert f"{mount['mountPath']}/hosts.json" == STREAM_HOSTS


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (AllowLists(sources=("hf://*",)), "spec.model.uri: s3://models/tiny is not in allowed.sources"),
        (AllowLists(source_hosts=("mirror.example",)), "s3.us-east-1.amazonaws.com:443 is not in allowed.sourceHosts"),
    ],
)
def test_a_source_that_the_installer_does_not_allow_is_refused(allowed: AllowLists, words: str) -> None:
    found = outcome(installed=Installation(IMAGES, allowed=allowed))
    assert isinstance(found, Refused)
    assert found.reason is Reason.NotAllowed
    assert words in found.what


def policy(**given: Any) -> dict[str, Any]:
    (found,) = [one.body["spec"] for one in wanted(**given).children if one.resource is Resource.NetworkPolicy]
    return found  # type: ignore[no-any-return]


def test_pods_with_the_secret_go_to_the_source_and_the_collector_alone() -> None:
    assert policy()["policyTypes"] == ["Ingress", "Egress"]
    dns, anywhere = policy()["egress"]
    assert dns == DNS
    assert anywhere["ports"] == [{"port": 443, "protocol": "TCP"}]
    endpoint = {"env": [{"name": "AWS_ENDPOINT_URL", "value": "http://minio.storage.svc:9000"}]}
    tracing = {"tracing": {"endpoint": "http://collector.traces.svc:4318"}}
    *_, inside = policy(podTemplate=endpoint, engine=tracing)["egress"]
    names = [one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for one in inside["to"]]
    assert names == ["storage", "traces"]
    assert policy(model={"uri": "pvc://weights/tiny"})["policyTypes"] == ["Ingress"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "sleep": ({"engine": {"sleep": True}}, "spec.engine.sleep is not built with spec.model.stream"),
    "new weights in place": ({"engine": {"reload": True}}, "spec.engine.reload is not built with spec.model.stream"),
    "a draft model": (
        {"engine": {"speculative": {"method": "DraftModel", "draftModel": "hf://org/draft"}}},
        "spec.engine.speculative.draftModel",
    ),
    "layers that draft": (
        {"engine": {"speculative": {"method": "Mtp"}}},
        "spec.engine.speculative.method: Mtp is not built with spec.model.stream",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_read_a_disk_is_refused_by_its_field(name: str) -> None:
    spec, words = REFUSED[name]
    found = outcome(**spec)
    assert isinstance(found, Refused)
    assert found.reason is Reason.FeatureNotBuilt
    assert words in found.what


def test_machines_and_models_of_transformers_are_refused_by_the_engine_too() -> None:
    given = config(wanted())
    several = replace(given, features=replace(given.features, nodes=2, tensor=2))
    assert [one.what for one in not_streamed(several, None)] == [
        "spec.parallelism is not built with spec.model.stream: machines could read different versions"
    ]
    other = replace(ModelFacts.of(SHAPE), path=ModelPath.Transformers)
    (obstacle,) = not_streamed(given, other)
    assert "which transformers computes" in obstacle.what
    assert obstacle.step == "set spec.model.cache instead of spec.model.stream"
    assert not list(not_streamed(given, ModelFacts.of(SHAPE)))


@pytest.mark.parametrize(
    ("uri", "more"),
    [
        ("oci://reg.example/a:b", {}),
        ("https://host.example/a.tar", {"sha256": "0" * 64}),
        ("pvc://weights/tiny", {"secretRef": None}),
        ("hf://org/tiny@main/tiny.gguf", {}),
        ("s3://models/tiny", {"cache": {"size": "1Gi"}}),
    ],
)
def test_what_cannot_be_streamed_is_no_valid_spec(uri: str, more: dict[str, Any]) -> None:
    model = {key: value for key, value in {**STREAM, "uri": uri, **more}.items() if value is not None}
    found = outcome(model=model)
    assert isinstance(found, Refused)
    assert found.reason is Reason.SpecInvalid
    assert "spec.model.stream" in found.what


def noted(model: ModelFacts | None, **spec: Any) -> str:
    body = inference_service(**spec)
    body["spec"]["model"] = STREAM
    (manifest,) = read("demo.yaml", json.dumps(body).encode())
    (note,) = [one for one in explain(manifest, model).notes if one.startswith("weights: each pod")]
    return note


def test_explain_says_how_many_bytes_each_start_reads() -> None:
    assert "all its weights (with --model-config: how many bytes)" in noted(None)
    assert "about 15.3 GiB of s3://models/tiny at each start" in noted(ModelFacts.of(SHAPE))
    assert "about 15.3 GiB (45.8 GiB for 3 pods)" in noted(ModelFacts.of(SHAPE), replicas=3)


def test_the_list_of_credentials_is_what_sources_take() -> None:
    assert {*TOKENS, DOCKER, *(key for keys, _, _ in OWN.values() for key in keys)} == SECRETS


def test_explain_counts_what_each_rank_reads_whole_and_what_is_on_its_way() -> None:
    """Two ranks read the output of attention and the matrix that narrows twice: 36 layers of (4096 + 12288) x 4096."""
    shape = ModelFacts.of(SHAPE)
    two = noted(shape, parallelism={"tensor": 2}, resources={"limits": {"nvidia.com/gpu": 2, "memory": "32Gi"}})
    assert "about 19.8 GiB of s3://models/tiny" in two
    assert "Meanwhile buffers take up to 2.3 GiB of the pod's memory, for 2 ranks" in two
    assert "Meanwhile buffers take up to 384 MiB of the pod's memory" in noted(None)


@pytest.mark.parametrize(("limit", "refused"), [(900 << 20, True), (2 << 30, False)])
def test_a_pod_that_has_no_room_for_what_is_on_its_way_is_refused(limit: int, refused: bool) -> None:
    """Front and engine take half a GiB, and the embedding of 151936 x 4096 in 16 bits 1.2 GiB."""
    given = config(wanted(resources={"limits": {"nvidia.com/gpu": 1}}))
    plan = resolve(given.feature_set(), given.planned_request())
    shape = ModelFacts.of(SHAPE)
    found = can_start(given, plan, shape, NodeFacts(container_bytes=limit))
    words = [one.what for one in found if one.reason == "WeightsTooLarge"]
    assert words == (
        [
            "the pod's memory limit of 900Mi leaves nothing for weights: front and engine themselves take at least "
            "1699Mi with 1.2 GiB of streamed weights on their way (assumed)"
        ]
        if refused
        else []
    )


def test_weights_on_their_way_count_on_a_cpu_next_to_the_weights() -> None:
    given, shape = config(wanted()), ModelFacts.of(SHAPE)
    plan, weights = resolve(given.feature_set(), given.planned_request()), weights_bytes(given, shape)
    staged = stream_bytes(given, shape)
    assert staged == 151936 * 4096 * 2
    for free, refused in ((weights + staged - 1, True), (weights + staged, False)):
        found = can_start(given, plan, shape, NodeFacts(free_bytes=free))
        words = [one.what for one in found if one.reason == "WeightsTooLarge"]
        assert [", and 1.2 GiB more while they are streamed, and" in one for one in words] == [True] * refused
