"""`make upgrade-check`: it sees every difference, and the page about upgrades has its table."""

import subprocess
from typing import Any

import pytest
import yaml

from tests.touched import ROOT
from tests.upgrade_check.differences import TABLES, Difference, compare, unintended
from tests.upgrade_check.intended import BASE, Intended, Row
from tests.upgrade_check.snapshot import defaulted, without_descriptions

PAGE = ROOT / "docs/operations/upgrades.md"
CRD = "crds/graphpod.dev_inferenceservices.yaml"
TEMPLATE = {"annotations": {"graphpod.dev/config-hash": "a"}, "spec": {"image": "i"}}
OTHER_PODS = {"Deployment": {"spec": {"template": {**TEMPLATE, "x": 1}}}}
OTHER_NAME = {"metadata": {"name": "demo-b"}, "data": {"engine.json": '{"maxBatch": 8}'}}
OTHER_CONFIG = {"metadata": {"name": "demo-b"}, "data": {"engine.json": '{"maxBatch": 9}'}}
OTHER_WORDS = {"data": {"plan.json": '{"decisions": [{"rule": "NoCuda", "because": "other words"}]}'}}


def snapshot(**changes: Any) -> dict[str, Any]:
    """One of a tree with one service."""
    made = {
        "ConfigMap": {"metadata": {"name": "demo-a"}, "data": {"engine.json": '{"maxBatch": 8}'}},
        "Deployment": {"spec": {"template": TEMPLATE}},
        "ControllerRevision": {"data": {"plan.json": '{"decisions": [{"rule": "NoCuda", "because": "words"}]}'}},
    }
    children = {"demo": {"children": {**made, **changes.pop("children", {})}}}
    kept = {"demo": {"children": {**made, **changes.pop("kept", {})}}}
    return {**{name: {} for name in (*TABLES, "explain")}, "children": children, "kept": kept, **changes}


def found(**changes: Any) -> list[str]:
    return [f"{one.area} {one.what}" for one in compare(snapshot(), snapshot(**changes))]


def test_equal_trees_have_no_differences() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"exits": {"New": 29}}, ["exits New"]),
        ({"options": {"graphpod crd": ["--out"]}}, ["options graphpod crd"]),
        ({"children": OTHER_PODS}, ["children Deployment.spec.template.x"]),
        ({"kept": OTHER_PODS}, ["kept Deployment.spec.template.x"]),
        ({"children": {"ConfigMap": OTHER_CONFIG}}, ["children ConfigMap.data.engine.json.maxBatch"]),
        ({"children": {"ConfigMap": OTHER_NAME}}, ["children ConfigMap.metadata.name"]),
        ({"children": {"ControllerRevision": OTHER_WORDS}}, []),
    ],
    ids=["exit code", "command", "fresh pods", "pods that run", "what a hash follows", "a hash alone", "words"],
)
def test_each_difference_is_seen_where_it_is(changes: dict[str, Any], seen: list[str]) -> None:
    assert found(**changes) == seen


def test_a_spec_that_is_refused_now_is_a_difference() -> None:
    after = snapshot()
    after["children"]["demo"] = after["kept"]["demo"] = {"refused": "SpecInvalid"}
    seen = [f"{one.area} {one.what}" for one in compare(snapshot(), after)]
    assert seen == ["children refused: runs → SpecInvalid", "kept refused: runs → SpecInvalid"]


def test_no_row_may_allow_a_change_to_pods_that_run() -> None:
    row = Row("kept", ("*",), "a change", "a reason")
    restart = Difference("kept", "Deployment.spec.template.x", "1", "2")
    assert unintended([restart], Intended((row,))) == [restart]


def test_a_row_about_a_field_covers_no_other_field() -> None:
    row = Row("children", ("refused: SpecInvalid → runs",), "a field", "a reason", ("spec.engine.new = *",))
    mine, others = (
        Difference("children", "refused: SpecInvalid → runs", "SpecInvalid", "runs", f"spec.engine.{name} = 1")
        for name in ("new", "old")
    )
    assert unintended([mine, others], Intended((row,))) == [others]


def test_defaults_are_those_that_the_api_server_fills_in() -> None:
    of_engine = {"properties": {"prefixCache": {"default": "Auto"}, "maxBatch": {}}}
    schema = {"properties": {"engine": {"default": {}, **of_engine}, "lora": {"items": of_engine}}}
    assert defaulted(schema, {}) == {"engine": {"prefixCache": "Auto"}}
    assert defaulted(schema, {"lora": [{"maxBatch": 1}]})["lora"] == [{"maxBatch": 1, "prefixCache": "Auto"}]


def test_only_the_texts_of_a_schema_are_left_out() -> None:
    schema = {"description": "a text", "properties": {"description": {"type": "string"}}}
    assert without_descriptions(schema) == {"properties": {"description": {"type": "string"}}}


def test_the_page_has_the_table_of_intended_differences() -> None:
    rows = [f"| {row.change} | {row.why} |" for row in Intended.read().rows]
    assert [line for line in PAGE.read_text().splitlines() if line in rows] == rows


def test_each_change_of_the_schema_is_a_row_of_the_table() -> None:
    """The whole comparison takes half a minute. This is the part that a change of the API forgets."""
    earlier = subprocess.run(["git", "show", f"{BASE}:{CRD}"], cwd=ROOT, capture_output=True, text=True)
    if earlier.returncode:
        pytest.skip(f"this clone does not have the commit {BASE}")
    before, after = (snapshot(schema=schema_of(text)) for text in (earlier.stdout, (ROOT / CRD).read_text()))
    assert [str(one) for one in unintended(compare(before, after), Intended.read())] == []


def schema_of(crd: str) -> dict[str, Any]:
    found: dict[str, Any] = without_descriptions(
        yaml.load(crd, yaml.CSafeLoader)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    )
    return found
