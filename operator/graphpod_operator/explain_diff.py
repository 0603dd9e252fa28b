"""What a change of a service would change: its plan, and whether pods are replaced. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator import observe
from graphpod_operator.explain import Explanation, as_dict
from graphpod_operator.plan import Desired, Refused, desire
from graphpod_operator.render.images import Images
from graphpod_operator.resource import Resource
from graphpod_policy import Outcome

SILENT = ("name", "namespace", "notes")
"""Parts of an explanation that are no part of what runs."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value of the explanation, before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Change:
    """Everything a change of spec does. `pods` says in a sentence what happens to them."""

    differences: tuple[Difference, ...]
    pods: str
    replaced: bool


def change(before: Explanation, after: Explanation, images: Images) -> Change:
    """From one spec to another."""
    pods, replaced = _pods(before, after, images)
    found = differences("", as_dict(before), as_dict(after))
    return Change(tuple(row for row in found if row.path.partition(".")[0] not in SILENT), pods, replaced)


def as_plain(found: Change) -> dict[str, Any]:
    """Plain values, for `-o json` and `-o yaml`."""
    rows = [{"path": row.path, "before": row.before, "after": row.after} for row in found.differences]
    return {"differences": rows, "pods": found.pods, "replaced": found.replaced}


def change_text(found: Change) -> str:
    """The change as text, ending with a newline."""
    told = [line for row in found.differences for line in lines(row)]
    return "\n".join([*(told or ["The plan stays as it is."]), "", found.pods]) + "\n"


def lines(row: Difference) -> list[str]:
    """One difference as lines."""
    sides = (("-", row.before), ("+", row.after))
    return [row.path, *(f"  {sign} {value}" for sign, value in sides if value)]


def differences(path: str, before: object, after: object) -> Iterator[Difference]:
    """The values that differ, by path; what one side lacks is empty there."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            yield from differences(f"{path}.{key}".strip("."), before.get(key), after.get(key))
    elif path == "decisions" and isinstance(before, list) and isinstance(after, list):
        old, new = (dict.fromkeys(map(_told, rows)) for rows in (before, after))
        yield from (Difference(path, row, "") for row in old if row not in new)
        yield from (Difference(path, "", row) for row in new if row not in old)
    else:
        yield Difference(path, _value(before), _value(after))


def _told(decision: Mapping[str, Any]) -> str:
    """In words; an adjustment is the same whatever policy it adjusts, the others speak of one."""
    policy = "" if decision["outcome"] == Outcome.Adjusted.value else f" {decision.get('policy', '')}".rstrip()
    return f"{decision['rule']} ({decision['phase']}{policy}, {decision['outcome']}): {decision['because']}"


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_told(item) if isinstance(item, dict) and "phase" in item else _short(item) for item in value)
    return "" if value is None else str(value)


def _short(item: object) -> str:
    return str(item.get("rule") or item.get("message")) if isinstance(item, dict) else str(item)


def _pods(before: Explanation, after: Explanation, images: Images) -> tuple[str, bool]:
    old, new = (_desired(explanation, images) for explanation in (before, after))
    if isinstance(new, Refused):
        return (
            f"The operator refuses the new spec ({new.reason.name}) and leaves the pods as they are: {new.what}",
            False,
        )
    if isinstance(old, Refused):
        return f"The operator refuses the old spec ({old.reason.name}); the new one is rolled out.", True
    if _template(old) != _template(new):
        return "Every pod is replaced, one after the other: the pod template changes.", True
    if old.replicas != new.replicas:
        return f"No pod is replaced; replicas go from {_replicas(old)} to {_replicas(new)}.", False
    if [child.body for child in old.children] != [child.body for child in new.children]:
        return "No pod is replaced; other fields of its objects change.", False
    return "Nothing changes in the cluster.", False


def _desired(explanation: Explanation, images: Images) -> Desired | Refused:
    """What the operator would make of it, under one name and uid for both sides."""
    metadata = {"name": "x", "namespace": "x", "uid": "x", "resourceVersion": "0"}
    named = {**explanation.manifest.raw, "metadata": metadata}
    return desire(observe.Service.of(named), images)


def _template(desired: Desired) -> object:
    (workload,) = (child for child in desired.children if child.resource is Resource.Deployment)
    return workload.body["spec"]["template"]


def _replicas(desired: Desired) -> str:
    return str(desired.replicas) if desired.replicas is not None else f"{desired.fewest} or more, by an autoscaler,"
