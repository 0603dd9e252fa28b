"""Which fields of a live object are ours."""

from typing import Any

from graphpod_operator.kube.field_ownership import owned_fields


def live(fields: dict[str, Any], **values: Any) -> dict[str, Any]:
    entries = [
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}},
        {"manager": "graphpod", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
        {"manager": "graphpod", "operation": "Apply", "fieldsV1": fields},
    ]
    return {"metadata": {"managedFields": entries, "labels": {"a": "1", "b": "2"}}, **values}


def test_only_named_fields_of_a_map_are_ours() -> None:
    found = owned_fields(live({"f:metadata": {"f:labels": {"f:a": {}}}}, spec={"x": 1}))
    assert found == {"metadata": {"labels": {"a": "1"}}}


def test_a_field_that_is_gone_is_not_ours_any_more() -> None:
    assert owned_fields(live({"f:spec": {"f:x": {}, "f:y": {}}}, spec={"x": 1})) == {"spec": {"x": 1}}


def test_a_list_keyed_by_name_keeps_our_items_and_our_fields_of_them() -> None:
    fields = {"f:spec": {"f:ports": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:port": {}}}}}
    spec = {"ports": [{"name": "b", "port": 1}, {"name": "a", "port": 2, "foreign": 3}]}
    assert owned_fields(live(fields, spec=spec)) == {"spec": {"ports": [{"name": "a", "port": 2}]}}


def test_a_list_with_two_keys_matches_on_both() -> None:
    fields = {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:protocol": {}}}}
    ports = [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}]
    assert owned_fields(live(fields, ports=ports)) == {"ports": [ports[1]]}


def test_a_set_keeps_our_values() -> None:
    assert owned_fields(live({"f:names": {'v:"a"': {}}}, names=["b", "a"])) == {"names": ["a"]}


def test_an_atomic_value_is_ours_as_a_whole() -> None:
    assert owned_fields(live({"f:selector": {}}, selector={"x": {"y": 1}})) == {"selector": {"x": {"y": 1}}}


def test_an_object_we_never_applied_has_no_field_of_ours() -> None:
    assert owned_fields({"metadata": {"name": "x"}, "spec": {"a": 1}}) == {}
