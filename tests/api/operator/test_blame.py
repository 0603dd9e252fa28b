"""What cannot run for spec.resources or spec.placement, mostly by the API server's refusal: the field, and words."""

import json
from typing import Any

import pytest

from tests.places import Place

TERM = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}


@pytest.mark.parametrize(
    ("wrong", "field", "words"),
    [
        ({"resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "2"}}}, "spec.resources.requests.cpu", "more than"),
        ({"resources": {"limits": {"gpus": 1}}}, "spec.resources.limits", "not a resource of a container"),
        ({"resources": {"requests": {"example.com/nic": 1}}}, "spec.resources.requests[example.com/nic]", "is not set"),
        (
            {"placement": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERM}}}},
            "spec.placement.affinity",
            "not a valid selector",
        ),
        (
            {"placement": {"affinity": {"nodeAffinity": {"anywhere": True}}}},
            "spec.placement.affinity.nodeAffinity.anywhere",
            "field not declared in schema",
        ),
        ({"placement": {"tolerations": [{"key": "a b"}]}}, "spec.placement.tolerations", "name part"),
        ({"placement": {"nodeSelector": {"a b": "c"}}}, "spec.placement.nodeSelector", "name part"),
        ({"placement": {"priorityClassName": "A B"}}, "spec.placement.priorityClassName", "RFC 1123"),
        ({"placement": {"runtimeClassName": "A B"}}, "spec.placement.runtimeClassName", "RFC 1123"),
    ],
    ids=[
        "requests above limits", "no such resource", "a device in requests only", "operator of affinity",
        "field of affinity", "toleration", "node selector", "priority class", "runtime class",
    ],
)  # fmt: skip
def test_a_mistake_in_resources_or_placement_names_its_field_until_it_is_corrected(
    operator, place: Place, eventually, wrong: dict[str, Any], field: str, words: str
) -> None:
    place.apply(**wrong)
    message = eventually(place.reached("Accepted", "False", "SpecInvalid"))
    assert message.startswith(field)
    assert words in message
    assert "delete" not in message
    assert place.condition("Stalled")[:2] == ("True", "SpecInvalid")
    cleared = {"spec": dict.fromkeys(wrong)}
    place.kubectl("patch", "gisvc", "demo", "--type=merge", "-p", json.dumps(cleared))
    eventually(place.reached("Accepted", "True", "Accepted"))


def test_a_priority_class_that_does_not_exist_is_named(operator, place: Place, eventually) -> None:
    place.apply(placement={"priorityClassName": "gold"})
    message = eventually(place.reached("WorkloadAvailable", "False", "PlacementRefused"))
    assert "gold" in message
