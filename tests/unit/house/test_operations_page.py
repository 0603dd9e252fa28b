"""docs/operations.md gives the reason of every right the operator has, and of no other."""

from pathlib import Path
from typing import Any

import yaml

PAGE = Path("docs/operations.md").read_text()


def granted() -> list[dict[str, Any]]:
    """Every rule that the chart can grant."""
    folder = Path("charts/graphpod/files")
    rules = [rule for name in ("rbac.yaml", "rbac-lease.yaml") for rule in yaml.safe_load((folder / name).read_text())]
    return rules + [
        rule for kind in yaml.safe_load((folder / "rbac-optional.yaml").read_text()).values() for rule in kind
    ]


def test_every_right_of_the_operator_has_its_reason_there() -> None:
    section = PAGE.partition("\n## What the operator may do, verb by verb\n")[2]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    told = [(name, verb.strip()) for names, verb, why in rows for name in names.strip().split(", ") if why.strip()]
    rights = {(name, verb) for rule in granted() for name in rule["resources"] for verb in rule["verbs"]}
    assert len(told) == len(set(told))
    assert set(told) == rights
