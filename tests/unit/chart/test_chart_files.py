"""What can be said of the chart without helm."""

import json
from pathlib import Path

import pytest
import yaml

from graphpod_policy import __version__

CHART = Path("charts/graphpod")
CRD = Path("crds/graphpod.dev_inferenceservices.yaml")


RULES = sorted(Path("operator/graphpod_operator").glob("rbac*.yaml"))


@pytest.mark.parametrize("source", [CRD, *RULES], ids=lambda path: path.name)
def test_the_chart_carries_what_the_operator_generates(source: Path) -> None:
    carried = CHART / "files" / source.name
    assert carried.read_bytes() == source.read_bytes(), f"the chart's copy is old: cp {source} {carried}"


def test_the_crd_leaves_its_annotations_to_the_chart() -> None:
    """The template puts the keep policy in as text; a second `annotations` key would make invalid YAML."""
    assert "annotations" not in yaml.safe_load(CRD.read_text())["metadata"]


def test_the_chart_has_the_version_of_the_code() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_every_value_is_in_the_closed_schema_and_the_other_way_round() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    differences = list(_differences(yaml.safe_load((CHART / "values.yaml").read_text()), schema, ""))
    assert differences == []


def _differences(values: dict, schema: dict, path: str):
    """Paths where values.yaml and the schema disagree about which keys there are, or where the schema is open."""
    if "properties" not in schema:
        return
    if schema.get("additionalProperties") is not False:
        yield f"{path or '.'} is open"
    known = set(schema["properties"]) - {"global", "requests", "limits"}
    for key in known ^ (set(values) - {"requests", "limits"}):
        yield f"{path}.{key}"
    for key in known & set(values):
        if isinstance(values[key], dict):
            yield from _differences(values[key], schema["properties"][key], f"{path}.{key}")
