"""docs/operations.md gives the reason of every right the operator has, and of no other."""

from pathlib import Path

import yaml

PAGE = Path("docs/operations.md").read_text()
RULES = [Path("charts/graphpod/files") / name for name in ("rbac.yaml", "rbac-lease.yaml")]


def test_every_right_of_the_operator_has_its_reason_there() -> None:
    section = PAGE.partition("\n## What the operator may do, verb by verb\n")[2]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    told = [(name, verb.strip()) for names, verb, why in rows for name in names.strip().split(", ") if why.strip()]
    rules = [rule for file in RULES for rule in yaml.safe_load(file.read_text())]
    granted = {(name, verb) for rule in rules for name in rule["resources"] for verb in rule["verbs"]}
    assert len(told) == len(set(told))
    assert set(told) == granted
