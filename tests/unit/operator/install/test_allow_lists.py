"""Contract 35: lists of what services may use. What breaks one is refused, and what runs stays."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from graphpod_operator.cache.service import Service
from graphpod_operator.cli import main
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.explain.admission_warnings import WILL_NOT_RUN, warnings_of
from graphpod_operator.install.allow_lists import DEFAULT, RESTRICTED_VOLUMES, AllowLists, AllowListsInvalid
from graphpod_operator.install.installation import Installation
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from tests.unit.operator.objects import IMAGES, inference_service
from tests.unit.operator.world import World

HOST = {"name": "logs", "hostPath": {"path": "/var/log"}}
NOTHING = AllowLists((), (), (), (), (), ())
DEPLOYMENT = Resource.Deployment, "ns", "demo"


def volumes(*found: dict[str, Any]) -> dict[str, Any]:
    return {"podTemplate": {"volumes": list(found)}}


def route(*gateways: dict[str, Any], hosts: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"networking": {"route": {"parentRefs": list(gateways), "hostnames": list(hosts)}}}


def asked(allowed: AllowLists, **spec: Any) -> Desired | Refused:
    return desire(PlanInput(Service.of(inference_service(**spec)), Installation(IMAGES, allowed)))


@pytest.mark.parametrize("kind", [*RESTRICTED_VOLUMES, "image"])
def test_the_volume_types_of_restricted_and_images_are_allowed_by_default(kind: str) -> None:
    assert isinstance(asked(DEFAULT, **volumes({"name": "data", kind: {}})), Desired)


@pytest.mark.parametrize("kind", ["hostPath", "nfs", "iscsi", "rbd", "gcePersistentDisk", "someday", "HostPath"])
def test_any_other_volume_type_is_refused_by_field_and_value_with_the_list(kind: str) -> None:
    refused = asked(DEFAULT, **volumes({"name": "fine", "emptyDir": {}}, {"name": "data", kind: {"path": "/"}}))
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.NotAllowed
    assert refused.what == f"spec.podTemplate.volumes[data]: {kind} is not in allowed.volumeTypes: " + ", ".join(
        (*RESTRICTED_VOLUMES, "image")
    )


def test_hostpath_is_for_the_installer_to_allow() -> None:
    assert isinstance(asked(AllowLists(volume_types=("emptyDir", "hostPath")), **volumes(HOST)), Desired)


def test_a_volume_with_two_sources_needs_both_and_one_without_a_source_is_an_emptydir() -> None:
    both = {"name": "data", "emptyDir": {}, "hostPath": {"path": "/"}}
    assert isinstance(asked(DEFAULT, **volumes(both)), Refused)
    assert isinstance(asked(AllowLists(volume_types=("emptyDir",)), **volumes({"name": "data"})), Desired)
    assert isinstance(asked(AllowLists(volume_types=("secret",)), **volumes({"name": "data"})), Refused)


@pytest.mark.parametrize(
    ("entries", "gateway", "right"),
    [
        (("*",), {"name": "edge", "namespace": "anywhere"}, True),
        (("gateways/edge",), {"name": "edge", "namespace": "gateways"}, True),
        (("gateways/*",), {"name": "edge", "namespace": "gateways"}, True),
        (("gateways/*",), {"name": "edge", "namespace": "gateways-of-others"}, False),
        (("gateways/edge",), {"name": "edge"}, False),
        (("ns/*",), {"name": "edge"}, True),
        ((), {"name": "edge"}, False),
    ],
)
def test_a_gateway_without_a_namespace_is_of_the_services_own(
    entries: tuple[str, ...], gateway: dict[str, Any], right: bool
) -> None:
    told = asked(AllowLists(gateways=entries), **route(gateway))
    assert isinstance(told, Desired) is right


@pytest.mark.parametrize(
    ("hosts", "right"),
    [
        (("llm.example.com",), True),
        (("a.team.example.com", "*.team.example.com"), True),
        (("team.example.com",), False),
        (("llm.example.com", "bank.example.com"), False),
        (("*.com",), False),
        (("llm.example.com.evil.org",), False),
        ((), False),
    ],
)
def test_every_hostname_must_be_allowed_and_none_at_all_takes_every_one(hosts: tuple[str, ...], right: bool) -> None:
    allowed = AllowLists(hostnames=("llm.example.com", "*.team.example.com"))
    told = asked(allowed, **route({"name": "edge"}, hosts=hosts))
    assert isinstance(told, Desired) is right
    assert isinstance(asked(AllowLists(), **route({"name": "edge"}, hosts=hosts)), Desired)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"engine": {"image": "evil.example/engine:1"}}, "spec.engine.image: evil.example/engine:1"),
        (
            volumes({"name": "data", "image": {"reference": "evil.example/data:1"}}),
            "spec.podTemplate.volumes[data].image.reference: evil.example/data:1",
        ),
        (volumes({"name": "data", "image": {}}), "spec.podTemplate.volumes[data].image.reference: "),
    ],
)
def test_images_of_engines_and_volumes_are_of_the_list(spec: dict[str, Any], field: str) -> None:
    refused = asked(AllowLists(images=("registry.example/*",)), **spec)
    assert isinstance(refused, Refused)
    assert refused.what == f"{field} is not in allowed.images: registry.example/*"


def test_the_operators_own_engine_image_is_always_allowed() -> None:
    assert isinstance(asked(NOTHING), Desired)
    assert isinstance(asked(AllowLists(images=("a/*",)), engine={"image": "a/b:1"}), Desired)


def test_an_entry_is_no_pattern_but_for_its_stars() -> None:
    assert isinstance(asked(AllowLists(images=("a/[b]?",)), engine={"image": "a/bc"}), Refused)
    assert isinstance(asked(AllowLists(images=("a/b.c*",)), engine={"image": "a/bxc:1"}), Refused)
    assert isinstance(asked(AllowLists(images=("a/b.c*",)), engine={"image": "a/b.c:1"}), Desired)


async def test_a_running_service_that_breaks_a_list_is_refused_and_nothing_of_it_is_written(world: World) -> None:
    world.cluster.put(Resource.InferenceService, inference_service(**volumes(HOST)))
    await world.relist()
    world.reconciler = world.make_reconciler()
    await world.reconcile()
    before = world.deployment
    world.reconciler = world.make_reconciler(allowed=DEFAULT)
    world.cluster.writes.clear()
    await world.reconcile()
    assert world.deployment == before
    assert world.kinds() == ["status"]
    assert world.condition("Accepted") == ("False", "NotAllowed")
    said = world.message("Accepted")
    assert said.startswith("spec.podTemplate.volumes[logs]: hostPath is not in allowed.volumeTypes: ")
    assert said.endswith("or ask the operator's admin to extend that list in the chart's values")
    assert len(said) <= 256


async def test_a_new_service_that_breaks_a_list_gets_no_object(world: World) -> None:
    world.cluster.put(Resource.InferenceService, inference_service(**volumes(HOST)))
    await world.relist()
    world.reconciler = world.make_reconciler(allowed=DEFAULT)
    await world.reconcile()
    assert [place for place in world.cluster.objects if place[0] is not Resource.InferenceService] == []


def test_the_webhook_warns_of_it() -> None:
    service = inference_service(**volumes(HOST))
    warnings = warnings_of(service, {}, DEFAULT)
    assert warnings[0].startswith(f"{WILL_NOT_RUN}spec.podTemplate.volumes[logs]: hostPath is not in allowed.volume")
    assert not any("allowed" in told for told in warnings_of(service, {}))


def test_lists_are_read_from_json_and_one_that_is_absent_allows_everything() -> None:
    text = '{"volumeTypes": ["emptyDir"], "hostnames": []}'
    assert AllowLists.read(text) == AllowLists(volume_types=("emptyDir",), hostnames=())
    assert AllowLists.read("{}") == AllowLists()


@pytest.mark.parametrize(
    "text",
    [
        *("no JSON", "[]", "null", "1"),
        *(
            '{"volumes": []}',
            '{"volumeTypes": "emptyDir"}',
            '{"gateways": [""]}',
            '{"images": [1]}',
            '{"images": null}',
        ),
    ],
)
def test_what_is_no_set_of_lists_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(AllowListsInvalid, match="volumeTypes"):
        AllowLists.read(text)


def test_explain_refuses_it_when_the_lists_are_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(inference_service(**volumes(HOST))))
    assert main(["explain", "-f", str(file), "--allowed", "{}"]) != 4
    assert "NotAllowed" not in capsys.readouterr().out
    assert main(["explain", "-f", str(file), "--allowed", '{"volumeTypes": ["emptyDir"]}']) == 4
    told = capsys.readouterr().out
    assert "spec.podTemplate.volumes[logs]: hostPath is not in allowed.volumeTypes: emptyDir" in told
    assert told.index("hostPath is not in") < told.index("prefill")
    with pytest.raises(SystemExit):
        main(["explain", "-f", str(file), "--allowed", "hostPath"])
    assert "volumeTypes" in capsys.readouterr().err


def downloaded(uri: str = "hf://acme/model@main", **variables: str) -> dict[str, Any]:
    archive = {"sha256": "a" * 64} if uri.startswith("https:") else {}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    return {"model": {"uri": uri, "cache": {"claim": "shared"}, **archive}, "podTemplate": {"env": env}}


@pytest.mark.parametrize(
    ("entries", "uri", "right"),
    [
        (("*",), "hf://acme/model", True),
        (("hf://acme/*",), "hf://acme/model@main", True),
        (("hf://acme/*",), "hf://other/model", False),
        (("hf://acme/*",), "s3://acme/model", False),
        ((), "hf://acme/model", False),
        ((), "pvc://weights/qwen3", True),
    ],
)
def test_a_source_is_in_the_list_of_uris(entries: tuple[str, ...], uri: str, right: bool) -> None:
    spec = {"model": {"uri": uri}} if uri.startswith("pvc:") else downloaded(uri)
    told = asked(AllowLists(sources=entries), **spec)
    assert isinstance(told, Desired) == right
    if isinstance(told, Refused):
        assert told.reason is Reason.NotAllowed
        assert told.what == f"spec.model.uri: {uri} is not in allowed.sources: {', '.join(entries) or 'nothing'}"


@pytest.mark.parametrize(
    ("entries", "spec", "refused"),
    [
        (("huggingface.co",), downloaded(), None),
        (("*.example",), downloaded(), "spec.model.uri: huggingface.co:443"),
        (("Mirror.example:8443",), downloaded(HF_ENDPOINT="https://mirror.EXAMPLE:8443"), None),
        (("mirror.example:443",), downloaded(HF_ENDPOINT="http://mirror.example"), "HF_ENDPOINT]: mirror.example:80"),
        (("huggingface.co",), downloaded(HTTPS_PROXY="http://evil.example:3128"), "HTTPS_PROXY]: evil.example:3128"),
        (("*.amazonaws.com",), downloaded("s3://models/x", AWS_REGION="eu-west-1"), None),
        (("*.amazonaws.com",), downloaded("s3://m1/x", AWS_ENDPOINT_URL="http://minio.team.svc:9000"), "minio.team"),
        (("files.example",), downloaded("https://evil.example/x.tar"), "spec.model.uri: evil.example:443"),
        (("files.example",), downloaded("https://files.example@evil.example/x.tar"), "evil.example:443"),
        (("reg.example:5000",), downloaded("oci://reg.example:5000/a:b"), None),
        (("reg.example",), downloaded("oci://docker.io/a/b:c"), "registry-1.docker.io:443"),
        ((), downloaded("gs://models/x"), "storage.googleapis.com:443"),
    ],
)  # fmt: skip
def test_a_download_goes_to_hosts_of_the_list(
    entries: tuple[str, ...], spec: dict[str, Any], refused: str | None
) -> None:
    told = asked(AllowLists(source_hosts=entries), **spec)
    assert isinstance(told, Refused) == (refused is not None)
    if isinstance(told, Refused) and refused is not None and told.reason is not Reason.SpecInvalid:
        assert refused in told.what
        assert told.reason is Reason.NotAllowed


def test_the_job_knows_the_list_for_redirects() -> None:
    made = asked(AllowLists(source_hosts=("huggingface.co", "*.hf.co")), **downloaded())
    assert isinstance(made, Desired)
    assert made.weights is not None
    command = made.weights.downloads[0].job.body["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--allowed-hosts") + 1 :][:2] == ["huggingface.co", "*.hf.co"]
