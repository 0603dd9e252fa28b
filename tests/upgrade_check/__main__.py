"""What an upgrade from an earlier commit changes. `python -m tests.upgrade_check --help`.

Both trees plan the same services: the earlier commit's examples and goldens, and a spec for each value of interest in
each field. Children, hashes, exit codes, schema, metrics, reasons, rules and options are compared. `intended.toml` says
which differences are intended, and why. Any other is an error.

No row can allow a change to pods that run. For every service that ran before, today's operator gets the
ControllerRevision that the earlier one left. Its Deployment and its ConfigMap must then be the same bytes, unless it
asks for every new revision (`spec.updates: Auto`), or Kubernetes would not have taken its pods.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from graphpod_operator.api import quantity
from tests.specs import fields, values, with_value
from tests.upgrade_check.differences import compare, table, unintended
from tests.upgrade_check.intended import BASE, Intended

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = Path(__file__).with_name("snapshot.py")
SOURCES = ("policy", "operator", "runtime")
GOLDENS = "tests/unit/operator/goldens"
Raw = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade_check", description="What does an upgrade change?")
    parser.add_argument("--base", default=BASE, help="the earlier commit (%(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation has it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graphpod-upgrade-") as scratch:
        tree = checked_out(arguments.base, Path(scratch))
        before, after = snapshots(tree)
    found = compare(before, after)
    intended = Intended.read()
    left = unintended(found, intended)
    print(table(found, intended, markdown=arguments.markdown))
    print(f"{_counted(before, after)}: {len(found)} differences, {len(left)} of them not intended", file=sys.stderr)
    for one in left:
        print(f"not intended: {one}", file=sys.stderr)
    return 1 if left else 0


def checked_out(commit: str, folder: Path) -> Path:
    """The sources, examples and goldens of a commit in a folder."""
    paths = (*SOURCES, "examples", GOLDENS)
    archive = subprocess.run(["git", "archive", commit, *paths], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


def snapshots(tree: Path) -> tuple[Raw, Raw]:
    """What the earlier tree makes of its specs, and what today's makes of them."""
    files = {str(path.relative_to(tree)): path.read_text() for path in sorted((tree / "examples").rglob("*.yaml"))}
    given = {"cases": cases(tree), "files": files}
    before = snapshot(tree, given)
    kept = {
        name: {"spec": before["stored"][name], "body": made["children"]["ControllerRevision"]}
        for name, made in before["children"].items()
        # with Auto a service asks for every new revision
        if "children" in made and before["stored"][name].get("updates") != "Auto" and _may_run(before["stored"][name])
    }
    return before, snapshot(ROOT, {**given, "kept": kept})


def _may_run(spec: Raw) -> bool:
    """Whether Kubernetes takes a pod with these resources: of devices and huge pages it wants whole numbers, and a
    request that is the limit; a device's name has a domain.
    """
    resources = spec.get("resources") or {}
    limits, requests = (
        {name: quantity.value(amount) for name, amount in (resources.get(kind) or {}).items() if amount}
        for kind in ("limits", "requests")
    )
    devices = (limits | requests).keys() - {"cpu", "memory", "ephemeral-storage"}
    return all(
        ("/" in name or name.startswith("hugepages-"))
        and name in limits
        and limits[name] % 1 == 0
        and requests.get(name, limits[name]) == limits[name]
        for name in devices
    )


def snapshot(tree: Path, given: Raw) -> Raw:
    """What the packages of a tree say of services."""
    paths = os.pathsep.join(str(tree / source) for source in SOURCES)
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-P", str(SNAPSHOT)], input=json.dumps(given), text=True, check=True,
        stdout=subprocess.PIPE, env=environment, cwd=tree,
    )  # fmt: skip
    found: Raw = json.loads(done.stdout)
    return found


def cases(tree: Path) -> Raw:
    """Specs by name: of examples and goldens, and one for each value of a field."""
    found: Raw = {}
    for path in sorted((tree / "examples").rglob("*.yaml")):
        for one in filter(None, yaml.safe_load_all(path.read_text())):
            if one["kind"] == "InferenceService":
                found[f"{path.relative_to(tree)} {one['metadata']['name']}"] = one["spec"]
    for path in sorted((tree / GOLDENS).glob("*.in.yaml")):
        found[path.name] = {"model": {"uri": "pvc://weights/model"}, **yaml.safe_load(path.read_text())}
    return found | _of_fields()


@functools.cache
def _of_fields() -> Raw:
    made = {}
    for path, node in fields():
        for value in values(path, node):
            spec = with_value(path, value)
            if isinstance(spec, dict):
                made[f"{path} = {json.dumps(value)}"[:200]] = spec
    return made


def _counted(before: Raw, after: Raw) -> str:
    run = sum("children" in made for made in before["children"].values())
    kept = sum("children" in made for made in after["kept"].values())
    return f"{len(before['children'])} specs, {run} of which ran before and {kept} keep their pods"


if __name__ == "__main__":
    sys.exit(main())
