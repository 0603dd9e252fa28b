"""What is too large or too deep is outlined, and reported alone: as it is read, in the plan, to the user."""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.projections import project
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube import bounds
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.schema.openapi import structural
from tests.unit.operator.kube.oversized import DEEP, STORED, deep, large, metadata, nest
from tests.unit.operator.objects import INSTALLED, NAMESPACE, inference_service, outcome
from tests.unit.operator.world import World


def test_of_a_deep_object_its_metadata_and_status_are_read() -> None:
    found = bounds.read(deep("d"))
    assert found["metadata"] == {**metadata("d"), **STORED}
    assert found["status"] == {"x": "}"}
    assert "nested more than" in found[bounds.BREACH]
    assert "spec" not in found


def test_of_a_large_object_its_metadata_is_read() -> None:
    assert bounds.read(large("big")) == {
        "metadata": metadata("big"),
        bounds.BREACH: "the object has 512 KiB, more than 512",
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4) | st.just('"}]{[\\'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=5), st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_the_parts_of_any_map_are_those_a_reader_finds(raw: dict[str, Any], separators: tuple[str, str]) -> None:
    text = json.dumps(raw, separators=separators).encode()
    found = {json.loads(key): json.loads(text[begin:end].strip(b" ,")) for key, begin, end in bounds.parts(text)}
    assert found == raw


@given(st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=3), max_size=4))
def test_the_items_of_any_list_are_those_a_reader_finds(items: list[dict[str, Any]]) -> None:
    text = json.dumps(items).encode()
    assert [json.loads(text[begin:end]) for _, begin, end in bounds.parts(text)] == items


@given(st.binary(max_size=40))
def test_no_text_ends_a_reader_otherwise_than_by_an_error_of_value(text: bytes) -> None:
    for reader in (bounds.read, bounds.event, bounds.for_others, bounds.Page.of, lambda one: bounds.outline(one, "")):
        try:
            reader(text)  # type: ignore[operator]
        except ValueError:
            continue


@pytest.mark.parametrize("line", [b"{}", b'{"type": "ADDED"}', b'{"object": {}}', b"[]", b""])
def test_a_line_that_is_no_event_is_an_error_of_value(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"a type and an object|Expected `object`|truncated"):
        bounds.event(line)


@pytest.mark.parametrize("levels", [33, 300, 600, 940])
def test_a_spec_that_is_nested_too_deep_is_refused_with_the_field(levels: int) -> None:
    volume = {"name": "x", "configMap": json.loads(nest(levels))}
    found = Service.of(inference_service(podTemplate={"volumes": [volume]}))
    refused = desire(PlanInput(found, INSTALLED))
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.SpecTooLarge
    assert refused.what == "spec.podTemplate.volumes[0].configMap: the spec is nested more than 32 levels deep"
    assert found.spec == {}


def test_a_spec_of_too_many_values_is_refused_with_the_field() -> None:
    refused = outcome(podTemplate={"volumes": [{"name": "x", "csi": dict.fromkeys(map(str, range(5000)))}]})
    assert isinstance(refused, Refused)
    assert refused.what == "spec.podTemplate.volumes[0].csi: the spec has more than 4096 values"


def test_a_spec_whose_objects_would_be_too_large_is_refused_with_its_largest_field() -> None:
    """A ControllerRevision holds text within text: each quotation mark takes four bytes in it, and two in the spec."""
    quoted = [{"name": f"V{number}", "value": '"' * 4000} for number in range(58)]
    refused = outcome(podTemplate={"env": quoted})
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.SpecTooLarge
    assert refused.what.startswith("spec.podTemplate.env: the ControllerRevision made from the spec has 9")
    assert refused.what.endswith(" KiB, more than 480")


def test_of_a_long_annotation_only_the_beginning_is_remembered() -> None:
    """The Deployment's annotation repeats it, and has no room for 200 KB of quotation marks."""
    manifest = inference_service()
    manifest["metadata"]["annotations"] = {"graphpod.dev/adopt": '"' * 200_000}
    assert Service.of(manifest).adopt == '"' * 253


MANY = dict.fromkeys(map(str, range(9)), 1)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"podTemplate": {"volumes": [{"name": "x", **MANY}]}}, "spec.podTemplate.volumes[0]"),
        ({"podTemplate": {"env": [{"name": "X", "valueFrom": MANY}]}}, "spec.podTemplate.env[0].valueFrom"),
        ({"placement": {"affinity": {"podAntiAffinity": MANY}}}, "spec.placement.affinity.podAntiAffinity"),
    ],
)
def test_what_is_passed_through_has_few_fields(spec: dict[str, Any], field: str) -> None:
    refused = outcome(**spec)
    assert isinstance(refused, Refused)
    assert refused.what.startswith(f"{field}: ")
    node: Any = {"properties": {"spec": structural(Spec)}}
    for name in field.replace("[0]", "").split("."):
        node = node["properties"][name]
        node = node.get("items", node)
    assert node["maxProperties"] == 8


def test_the_largest_spec_of_a_real_pod_is_read() -> None:
    terms = [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"] * 8}] * 4}] * 8
    pods = [{"weight": 1, "podAffinityTerm": {"topologyKey": "t", "labelSelector": terms[0]}}] * 8
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": pods},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": pods},
    }
    env = [{"name": f"E{number}", "value": "v" * 4096} for number in range(64)]
    raw = inference_service(placement={"affinity": affinity}, podTemplate={"env": env})
    assert Service.of(bounds.read(json.dumps(raw).encode())).breach is None


@pytest.mark.parametrize("data", [nest(DEEP), nest(600), b'{"madeFrom":"m","engine.json":"' + b"[" * DEEP + b'"}'])
def test_a_memory_that_is_nested_deep_is_none(data: bytes) -> None:
    text = b'{"metadata":' + json.dumps(metadata("m", **STORED)).encode() + b',"revision":1,"data":' + data + b"}"
    child = project(Resource.ControllerRevision, bounds.read(text))
    assert isinstance(child, Child)
    assert child.kept is not None
    assert child.kept.trouble is not None


def test_whatever_stands_in_a_child_it_is_projected() -> None:
    fields: Any = json.loads(nest(450))
    entry = {"manager": "graphpod", "operation": "Apply", "fieldsV1": {"f:data": fields}}
    raw = {"metadata": metadata("m", **STORED, managedFields=[entry]), "data": fields}
    for resource in (Resource.ControllerRevision, Resource.ConfigMap, Resource.HTTPRoute, Resource.ScaledObject):
        assert Child.of(resource, raw).key == Key(NAMESPACE, "demo")
        odd = Child.of(resource, {"metadata": metadata("m"), "status": [1], "spec": 3, "data": 5, "revision": []})
        assert odd.name == "m"


async def test_a_service_that_breaks_a_bound_is_told_so_and_another_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.cluster.put(Resource.InferenceService, inference_service())
    with caplog.at_level(logging.WARNING):
        world.cluster.put(Resource.InferenceService, bounds.read(deep_service()))
        await world.relist()
    assert "InferenceService ns/demo" in str([vars(record) for record in caplog.records])
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "SpecTooLarge")
    assert world.kinds() == ["status"]


def deep_service() -> bytes:
    return json.dumps(inference_service()).encode().replace(b'"model":', b'"podTemplate":' + nest(DEEP) + b',"model":')


async def test_a_stray_object_that_breaks_a_bound_is_named_by_log_metric_and_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.cluster.put(Resource.InferenceService, inference_service())
    stray = {"metadata": metadata("stray", **STORED), bounds.BREACH: "the object has 900 KiB, more than 512"}
    world.cluster.put(Resource.ConfigMap, stray)
    await world.relist()
    assert any(getattr(record, "child", "") == "ConfigMap ns/stray" for record in caplog.records)
    world.meters.watch(world.store, world.queue, lambda: True)
    assert 'object_skipped{kind="ConfigMap",name="stray",namespace="ns"} 1.0' in world.meters.text().decode()
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")
    (event,) = (event for event in world.cluster.events if event["reason"] == "ObjectSkipped")
    assert event["message"].startswith("ConfigMap stray: the object has 900 KiB")
    del world.cluster.objects[Resource.ConfigMap, NAMESPACE, "stray"]
    await world.relist()
    assert "stray" not in world.meters.text().decode()
