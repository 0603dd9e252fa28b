"""An earlier commit's operator, and today's after it, on one API server: every example that can run keeps its pods.

GRAPHPOD_UPGRADE_BASE names another commit. `make upgrade-check` compares the plans of both for thousands of specs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.operator.process import MAIN, USER, Operator, paths
from tests.audit import Audit
from tests.crd import serve_crd, wait_served
from tests.eventually import Eventually
from tests.places import Place
from tests.upgrade_check.__main__ import SOURCES, checked_out
from tests.upgrade_check.intended import BASE

Manifest = dict[str, Any]
CHILDREN = (
    "serviceaccounts,configmaps,services,controllerrevisions,poddisruptionbudgets,deployments,horizontalpodautoscalers"
)

SETTLE = 120.0  # s, for all examples at once
UPDATES = "EngineUpdateAvailable"
"""The condition that may change: running pods keep their form, and today's operator offers its own."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources and examples of the earlier commit."""
    folder = tmp_path / "earlier"
    folder.mkdir()
    return checked_out(os.environ.get("GRAPHPOD_UPGRADE_BASE") or BASE, folder)


@pytest.fixture
def earlier(operator: Operator, tree: Path, tmp_path: Path, eventually: Eventually) -> Iterator[Operator]:
    """The earlier operator with its CRD, in place of today's. Both are back after the test."""
    assert operator.stop() == 0
    sources = tuple(tree / name for name in SOURCES)
    crd = subprocess.run(
        [sys.executable, "-c", MAIN, "crd"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **paths(sources)},
    )
    operator.cluster.kubectl("apply", "--server-side", "-f", "-", input=crd.stdout)
    wait_served(operator.cluster)
    made = replace(operator, log=tmp_path / "log", process=None, sources=sources)
    eventually.logs.append(made.log)
    made.start()
    eventually(made.idle)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.stop()
    serve_crd(operator.cluster)
    if operator.process is None or operator.process.poll() is not None:
        operator.start()
        eventually(operator.idle)


def examples(tree: Path) -> dict[str, Manifest]:
    """The specs of the earlier commit's examples by name, but for those of features that are not built."""
    found = [one for path in (tree / "examples").glob("*.yaml") for one in yaml.safe_load_all(path.read_text())]
    return {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "InferenceService"}


def children(place: Place) -> dict[str, Manifest]:
    """Every child as it was written, without what its controller writes."""
    found = json.loads(place.kubectl("get", CHILDREN, "-l", "app.kubernetes.io/part-of=graphpod", "-o", "json"))[
        "items"
    ]
    for one in found:
        del one["metadata"]["resourceVersion"]
        one.pop("status", None)
    return {f"{one['kind']} {one['metadata']['name']}": one for one in found}


def pods(place: Place) -> list[str]:
    found = json.loads(place.kubectl("get", "pods", "-o", "json"))["items"]
    return sorted(one["metadata"]["uid"] for one in found)


def conditions(place: Place) -> dict[str, list[tuple[str, str, str]]]:
    """Type, status and reason of each service's conditions, which are a map by type: their order is no part of it."""
    found = json.loads(place.kubectl("get", "gisvc", "-o", "json"))["items"]
    return {
        one["metadata"]["name"]: sorted(
            (row["type"], row["status"], row["reason"]) for row in one["status"]["conditions"]
        )
        for one in found
    }


def without_updates(found: dict[str, list[tuple[str, str, str]]]) -> dict[str, list[tuple[str, str, str]]]:
    return {name: [row for row in rows if row[0] != UPDATES] for name, rows in found.items()}


@pytest.mark.slow
def test_todays_operator_writes_nothing_but_status_to_services_of_an_earlier_commit(
    earlier: Operator, operator: Operator, tree: Path, place: Place, audit: Audit, eventually: Eventually
) -> None:
    services = examples(tree)
    for name, spec in services.items():
        place.apply(name, **spec)

    def settled() -> bool:
        items = json.loads(place.kubectl("get", "gisvc", "-o", "json"))["items"]
        deployments = json.loads(place.kubectl("get", "deployments", "-o", "json"))["items"]
        assert sorted(one["metadata"]["name"] for one in items) == sorted(services)
        assert all(one.get("status", {}).get("conditions") for one in items)
        for one in deployments:
            refused = "ReplicaFailure" in {row["type"] for row in one["status"].get("conditions", [])}
            assert refused or one["status"].get("replicas", 0) == one["spec"]["replicas"], one["metadata"]["name"]
        assert len(pods(place)) == sum(one["status"].get("replicas", 0) for one in deployments) > 10
        return earlier.idle()

    # but for pods that this cluster refuses: a class of priority that it does not have
    eventually(settled, timeout=SETTLE)
    before = children(place), pods(place), conditions(place)
    mark = audit.mark()
    assert earlier.stop() == 0
    serve_crd(operator.cluster)
    operator.start()
    eventually(operator.idle, timeout=SETTLE)
    assert (children(place), pods(place)) == before[:2]
    written = audit.since(mark).by(USER).of(place.namespace).writes()
    assert {one.kind for one in written} <= {"inferenceservices/status", "events"}
    ran = {name.removeprefix("Deployment ") for name in before[0] if name.startswith("Deployment ")}

    def as_before() -> bool:
        now = conditions(place)
        assert without_updates(now) == without_updates(before[2])
        assert {name for name, rows in now.items() if (UPDATES, "True", "NewEngine") in rows} <= ran
        return True

    eventually(as_before, timeout=SETTLE)
