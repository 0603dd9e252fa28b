"""What a user sees of the API with kubectl alone: the manual, the columns, the fields of several managers."""

import json
import os
from pathlib import Path

import pytest

from graphpod_operator.schema import crd
from testbed import Cluster
from tests.eventually import Eventually
from tests.places import Place, service

GOLDENS = Path(__file__).with_name("goldens")


@pytest.mark.parametrize("field", ["spec", "spec.graph", "spec.graph.prefill", "spec.podTemplate", "status"])
def test_kubectl_explain_reads_as_its_golden(crd_cluster: Cluster, field: str, eventually: Eventually) -> None:
    """With UPDATE_GOLDENS=1 in the environment the output is written instead; read the diff before you commit it."""

    told = eventually(lambda: crd_cluster.kubectl("explain", f"gisvc.{field}"))  # published after the kind is served
    told = "\n".join(line.rstrip() for line in told.splitlines()).strip() + "\n"
    golden = GOLDENS / f"explain-{field}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(told)
    assert golden.read_text() == told


def test_kubectl_finds_the_kind_by_its_short_name_and_by_the_category(place: Place) -> None:
    place.apply(suspend=True)
    assert "inferenceservice.graphpod.dev/demo" in place.kubectl("get", "graphpod", "-o", "name")
    assert "inferenceservice.graphpod.dev/demo" in place.kubectl("get", "gisvc", "-o", "name")


@pytest.mark.parametrize("wide", [False, True])
def test_kubectl_get_has_the_columns_of_the_table(place: Place, wide: bool) -> None:
    place.apply(suspend=True)
    heading = place.kubectl("get", "gisvc", *(["-o", "wide"] if wide else [])).splitlines()[0].split()
    assert heading == ["NAME", *(column.name.upper() for column in crd.COLUMNS if wide or not column.priority)]


def test_kubectl_scale_changes_the_replicas(place: Place) -> None:
    place.apply(suspend=True)
    place.kubectl("scale", "gisvc/demo", "--replicas=3")
    assert place.get("gisvc", "demo")["spec"]["replicas"] == 3


def test_two_managers_keep_their_own_fields(place: Place) -> None:
    """An application team applies the service, a platform team its pods' placement; neither takes the other's away."""

    def apply(manager: str, **spec: object) -> None:
        manifest = json.dumps({**service(), "spec": spec})
        place.kubectl("apply", "--server-side", f"--field-manager={manager}", "-f", "-", input=manifest)

    variable = {"name": "APP", "value": "1"}
    toleration = {"key": "gpu", "operator": "Exists"}
    apply("team", model={"uri": "pvc://c"}, podTemplate={"labels": {"app": "x"}, "env": [variable]}, suspend=True)
    apply(
        "platform",
        placement={"tolerations": [toleration]},
        podTemplate={"labels": {"cost": "y"}, "env": [{"name": "PROXY", "value": "2"}]},
    )
    apply("team", model={"uri": "pvc://c"}, podTemplate={"labels": {"app": "z"}, "env": [variable]}, suspend=True)
    spec = place.get("gisvc", "demo")["spec"]
    assert spec["podTemplate"]["labels"] == {"app": "z", "cost": "y"}
    assert {entry["name"] for entry in spec["podTemplate"]["env"]} == {"APP", "PROXY"}
    assert spec["placement"]["tolerations"] == [toleration]

    apply("platform", podTemplate={"labels": {"cost": "y"}})
    spec = place.get("gisvc", "demo")["spec"]
    assert [entry["name"] for entry in spec["podTemplate"]["env"]] == ["APP"]
    assert spec["podTemplate"]["labels"] == {"app": "z", "cost": "y"}
    assert "tolerations" not in spec["placement"]
