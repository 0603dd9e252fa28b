"""docs/operations.md gives the reason of every right the operator has, and of no other."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from graphpod_policy.metrics import Process, of

PAGE = Path("docs/operations.md").read_text()
FILES = sorted(Path("charts/graphpod/files").glob("rbac*.yaml"))


def granted() -> Iterator[dict[str, Any]]:
    """Every rule that the chart can grant; those to optional kinds stand by the value that grants them."""
    for file in FILES:
        found = yaml.safe_load(file.read_text())
        yield from chain.from_iterable(found.values()) if isinstance(found, dict) else found


def test_every_right_of_the_operator_has_its_reason_there() -> None:
    section = PAGE.partition("\n## What the operator may do, verb by verb\n")[2]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    told = [(name, verb.strip()) for names, verb, why in rows for name in names.strip().split(", ") if why.strip()]
    rights = {(name, verb) for rule in granted() for name in rule["resources"] for verb in rule["verbs"]}
    assert len(FILES) == 3
    assert len(told) == len(set(told))
    assert set(told) == rights


def test_every_metric_the_page_names_is_exported() -> None:
    named = set(re.findall(r"`((?:graphpod_operator|controller_runtime|workqueue|leader_election)_[a-z_]+)", PAGE))
    assert len(named) > 6
    assert named <= {row.name for row in of(Process.Operator)}
