"""What is made from the code is what is in the tree; and the tables it is made from are whole."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphpod_operator import cli
from graphpod_operator.api import status
from graphpod_operator.api.names import NAME_MAX
from graphpod_operator.cache.store import Store
from graphpod_operator.conditions.reason_row import Notice
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import MEANING, ConditionType
from graphpod_operator.docs import reference
from graphpod_operator.schema import crd
from graphpod_operator.telemetry.metrics import COUNTED_ON_SCRAPE, Meters
from graphpod_operator.watch.workqueue import KeyQueue
from graphpod_policy import FEATURES
from graphpod_policy.metrics import Kind, Process, of

ROOT = Path(__file__).parents[4]
PAGES = ("api.md", "conditions.md", "matrix.md", "metrics.md", "models.md", "rules.md")
# Of the 96 KiB that the CRD may take, 6 KiB are left to features that are not built yet. Both are our own choice: the
# API server takes 1.5 MiB, and `kubectl apply` 256 KiB. A field that does not fit shortens its words first.
MAX_CRD_BYTES = 98_304 - 6 * 1024


def test_the_crd_in_the_tree_is_the_one_of_the_models(tmp_path: Path) -> None:
    assert cli.main(["crd", "--out", str(tmp_path)]) == 0
    made = (tmp_path / crd.FILE).read_text()
    assert (ROOT / "crds" / crd.FILE).read_text() == made, "run `graphpod crd --out crds`"
    assert len(made.encode()) <= MAX_CRD_BYTES


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Made by the first test that asks, not by each worker that collects tests: it takes most of a processor second."""
    return reference.pages()


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_page_in_the_tree_is_the_one_of_the_tables(pages: dict[str, str], page: str) -> None:
    assert set(pages) == set(PAGES)
    assert (ROOT / "docs" / "reference" / page).read_text() == pages[page], "run `graphpod docs`"


def schema() -> dict[str, Any]:
    version = crd.definition()["spec"]["versions"][0]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return found


def walk(path: str, node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(f"{path}.{name}", child)
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            yield from walk(f"{path}[]", node[name])


NODES = [entry for part in ("spec", "status") for entry in walk(part, schema()[part])]


@pytest.mark.parametrize(("path", "node"), NODES, ids=[path for path, _ in NODES])
def test_every_string_list_and_map_is_bounded(path: str, node: dict[str, Any]) -> None:
    if node.get("type") == "string":
        assert "maxLength" in node or "enum" in node
    if node.get("type") == "array":
        assert "maxItems" in node
    if "additionalProperties" in node:
        assert "maxProperties" in node
    if node.get("type") == "integer" and path.startswith("spec"):
        assert {"minimum", "maximum"} <= node.keys()


@pytest.mark.parametrize(("path", "node"), NODES, ids=[path for path, _ in NODES])
def test_every_field_is_described_and_a_spec_field_tells_its_default(path: str, node: dict[str, Any]) -> None:
    if path.endswith("[]") or path in ("spec", "status"):
        return
    assert node["description"].endswith(".")
    if path.startswith("spec"):
        assert "Default:" in node["description"] or "Required" in node["description"]


NOT_BUILT = [(row.field, row.name) for row in FEATURES if not row.built]
IN_PART = {row.field for row in FEATURES if row.built}


@pytest.mark.parametrize(("path", "feature"), NOT_BUILT)
def test_what_is_not_built_is_said_where_the_field_is_explained(path: str, feature: str) -> None:
    node = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path.partition("[")[0].split("."):
        node = node["properties"][name]
    assert f"Not built in this version{f': {feature}' if path in IN_PART else ''}." in node["description"]


def test_the_sizes_of_names_leave_room_for_the_childrens() -> None:
    longest = f"{'a' * NAME_MAX}-engine-0123456789"
    assert len(longest) <= 63


def test_every_reason_is_documented_and_every_condition_explained() -> None:
    page = reference.conditions()
    assert set(MEANING) == set(ConditionType)
    for reason in Reason:
        assert f"| {reason.name} |" in page
        assert reason.row.set_when
        assert reason.row.cleared_when
    rows = {(reason.row.types, reason.row.set_when) for reason in Reason}
    assert len(rows) == len(list(Reason)), "two members with equal rows would be one"


def test_a_failure_says_what_to_do() -> None:
    for reason in Reason:
        if reason.row.stalled or reason.row.notice is Notice.Warning:
            assert reason.row.todo, reason.name


def test_every_word_of_a_reason_fits_its_field() -> None:
    assert max(len(reason.name) for reason in Reason) <= 64
    assert status.MAX_DECISIONS <= 32


def test_every_operator_metric_of_the_table_is_exported_and_no_other() -> None:
    meters = Meters.make()
    meters.watch(Store(), KeyQueue(), lambda: True)
    rows = {row.name: row for row in of(Process.Operator)}
    for row in rows.values():
        labels = dict.fromkeys(row.labels, "x")
        if row.name in COUNTED_ON_SCRAPE:
            continue
        if row.kind is Kind.Counter:
            meters.count(row.name, **labels)
        elif row.kind is Kind.Gauge:
            meters.set(row.name, 1, **labels)
        else:
            meters.observe(row.name, 1, **labels)
    declared = {line.split()[2] for line in meters.text().decode().splitlines() if line.startswith("# TYPE")}
    of_the_client_library = {name for name in declared if name.startswith(("process_", "python_"))}
    assert declared - of_the_client_library == set(rows)
    assert "process_resident_memory_bytes" in of_the_client_library


def test_the_rules_of_the_role_name_only_kinds_we_deal_with() -> None:
    rules = yaml.safe_load((ROOT / "operator" / "graphpod_operator" / "rbac.yaml").read_text())
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert "secrets" not in resources
    optional = yaml.safe_load((ROOT / "operator" / "graphpod_operator" / "rbac-optional.yaml").read_text())
    secrets = [rule for rules in optional.values() for rule in rules if "secrets" in rule["resources"]]
    assert [rule["verbs"] for rule in secrets] == [["create"]], "made for groups, and never read"
    assert all("*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"]) for rule in rules)


def test_the_command_line_loads_neither_framework_nor_client() -> None:
    check = (
        "import sys, graphpod_operator.cli as cli; cli.main(['rules']); "
        "bad = {'kopf', 'kubernetes', 'aiohttp', 'torch'} & set(sys.modules); sys.exit(repr(bad) if bad else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "  NoCuda\n" in ended.stdout


def test_the_docs_command_writes_every_page(tmp_path: Path) -> None:
    assert cli.main(["docs", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(reference.pages())
