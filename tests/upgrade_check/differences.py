"""The differences of two snapshots, as a table."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.upgrade_check.intended import KEPT, Intended, Row

Raw = dict[str, Any]
TABLES = ("schema", "exits", "metrics", "reasons", "rules", "options")
MISSING = "–"
FOLLOWS = ("config-hash", "graphpod.dev/template", "graphpod.dev/revision", "metadata.name", "configMap.name")
"""Ends of paths whose values are hashes of other fields of the same children, or names made from them."""

DECISION_TEXTS = ("because", "hint")


@dataclass(frozen=True)
class Difference:
    """`area` is a part of the snapshot, `what` a path in it; for children, the case is apart."""

    area: str
    what: str
    before: str
    after: str
    case: str = ""

    def __str__(self) -> str:
        of = f" ({self.case})" if self.case else ""
        return f"{self.area}: {self.what}: {self.before} → {self.after}{of}"


def compare(before: Raw, after: Raw) -> list[Difference]:
    """All differences. A spec that both refuse is none, whatever the reason's text."""
    found = [one for area in TABLES for one in _paths(area, before[area], after[area])]
    for name, made in before["explain"].items():
        found += _paths("explain", made, after["explain"][name], name)
    for name, made in before["children"].items():
        found += _of_children("children", made, after["children"][name], name)
        if name in after["kept"]:
            found += _of_children(KEPT, _pods(made), _pods(after["kept"][name]), name)
    return found


def _of_children(area: str, before: Raw, after: Raw, case: str) -> Iterator[Difference]:
    if "refused" in before or "refused" in after:
        if before.get("refused") != after.get("refused"):
            was, now = before.get("refused", "runs"), after.get("refused", "runs")
            yield Difference(area, f"refused: {was} → {now}", was, now, case)
        return
    found = list(_paths(area, _opened(before["children"]), _opened(after["children"]), case))
    causes = [one for one in found if not one.what.endswith(FOLLOWS) and not one.what.startswith("ControllerRevision")]
    yield from causes or found


def _pods(made: Raw) -> Raw:
    """The children that pods are made from."""
    if "refused" in made:
        return made
    return {"children": {kind: made["children"][kind] for kind in ("ConfigMap", "Deployment")}}


def _opened(node: Any) -> Any:
    """Values with the JSON that stands in texts read, each with a path; without the texts of decisions."""
    if isinstance(node, dict):
        return {
            name: _opened(json.loads(one)) if isinstance(one, str) and name.endswith(".json") else _opened(one)
            for name, one in node.items()
            if name not in DECISION_TEXTS
        }
    return [_opened(one) for one in node] if isinstance(node, list) else node


def _paths(area: str, before: Any, after: Any, case: str = "", path: str = "") -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(name for name in after if name not in before)]:
            below = f"{path}.{name}" if path else name
            yield from _paths(area, before.get(name, MISSING), after.get(name, MISSING), case, below)
    elif isinstance(before, list) and isinstance(after, list) and all(isinstance(one, str) for one in before + after):
        for one in sorted({*before, *after}):
            if (one in before) != (one in after):
                yield Difference(area, f"{path}.{one}", *((one, MISSING) if one in before else (MISSING, one)), case)
    elif before != after:
        yield Difference(area, path, _short(before), _short(after), case)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}…"


def unintended(found: list[Difference], intended: Intended) -> list[Difference]:
    """What no row of the table covers."""
    return [one for one in found if intended.row(one.area, one.what, one.case) is None]


def table(found: list[Difference], intended: Intended, markdown: bool = False) -> str:
    """A line for each row of the table that differences fall under, and for the rest one for each path."""
    rows: Counter[Row] = Counter()
    rest: Counter[tuple[str, str]] = Counter()
    for one in found:
        row = intended.row(one.area, one.what, one.case)
        if row is not None:
            rows[row] += 1
        else:
            rest[one.area, one.what] += 1
    if markdown:
        return "\n".join(("| what | why |", "|---|---|", *(f"| {row.change} | {row.why} |" for row in rows)))
    lines = [f"{count:6}  intended    {row.area:9} {row.change}" for row, count in rows.items()]
    return "\n".join([*lines, *(f"{count:6}  UNEXPECTED  {area:9} {what}" for (area, what), count in rest.items())])
