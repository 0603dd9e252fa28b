"""The configuration for kube-state-metrics names fields and phases that the API has."""

from typing import Any

import yaml

from graphpod_operator.api.status import ServicePhase
from tests.unit.house.pages import ROOT

TEXT = (ROOT / "charts/graphpod/files/kube-state-metrics.yaml").read_text()
(RESOURCE,) = yaml.safe_load(TEXT)["spec"]["resources"]
(VERSION,) = yaml.safe_load((ROOT / "crds/graphpod.dev_inferenceservices.yaml").read_text())["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def known(schema: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """The schema at a path. KeyError for a field that the API does not have."""
    for field in path:
        schema = schema["properties"][field]
    return schema


def test_every_path_is_a_field_of_the_api() -> None:
    for metric in RESOURCE["metrics"]:
        (found,) = [metric["each"][kind] for kind in ("info", "stateSet", "gauge") if kind in metric["each"]]
        at = known(SCHEMA, found.get("path", []))
        at = at.get("items", at)
        for path in (
            *found.get("labelsFromPath", {}).values(),
            *([found["valueFrom"]] if "valueFrom" in found else []),
        ):
            known(at, path)


def test_every_phase_has_a_series() -> None:
    (states,) = [metric["each"]["stateSet"]["list"] for metric in RESOURCE["metrics"] if "stateSet" in metric["each"]]
    assert states == [phase.value for phase in ServicePhase]


def test_it_is_about_our_kind_as_the_api_serves_it() -> None:
    group = RESOURCE["groupVersionKind"]
    assert group == {"group": "graphpod.dev", "version": VERSION["name"], "kind": "InferenceService"}
