"""What a change of a service would change: its plan, and whether pods are replaced. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator.cache.service import Service
from graphpod_operator.explain.explanation import Explanation, as_dict
from graphpod_operator.explain.text import ROWS, gaps_text, ladder_text, obstacle_lines
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.installation import Installation
from graphpod_operator.kube.resources import WORKLOADS
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.workload.rolling import most_unavailable, surges
from graphpod_policy import Obstacle, Outcome, Phase
from graphpod_policy.units import as_quantity, duration, size

SILENT = ("name", "namespace", "notes")
"""Parts of an explanation that are no part of what runs."""
VERDICT = "obstacles"
"""The part that the first lines say."""
NOT_PLANNED = "Nothing below changes. It is how the plan would differ if the new spec were accepted."


@dataclass(frozen=True, slots=True)
class Difference:
    """One value of the explanation, before and after; None where a side has none."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Change:
    """Everything a change of spec does. `pods` says in a sentence what happens to the pods, `obstacles` what prevents
    a start of the new ones.
    """

    differences: tuple[Difference, ...]
    pods: str
    replaced: bool
    obstacles: tuple[Obstacle, ...] = ()
    refused: bool = False
    """Whether the operator refuses the new spec: the differences are of a plan that it does not make."""


def change(before: Explanation, after: Explanation, images: Images) -> Change:
    """From one spec to another."""
    old, new = (_desired(explanation, images) for explanation in (before, after))
    pods, replaced = _pods(old, new)
    found = differences("", as_dict(before), as_dict(after))
    kept = tuple(row for row in found if row.path.partition(".")[0] not in SILENT)
    refused = isinstance(new, Refused)
    return Change(kept, pods, replaced, () if refused else after.obstacles, refused)


def as_plain(found: Change) -> dict[str, Any]:
    """Plain values, for `-o json` and `-o yaml`."""
    rows = [{"path": row.path, "before": row.before, "after": row.after} for row in found.differences]
    return {"differences": rows, "pods": found.pods, "replaced": found.replaced}


def change_text(found: Change) -> str:
    """The change as text, ending with a newline: first whether the new pods can start, and what becomes of the old."""
    rows = [row for row in found.differences if row.path != VERDICT]
    plan = lines(rows) if rows else ["The plan stays as it is."]
    none = [NOT_PLANNED, ""] if found.refused and rows else []
    return "\n".join([*obstacle_lines(found.obstacles), found.pods, "", *none, *plan]) + "\n"


def lines(rows: Iterable[Difference]) -> Iterator[str]:
    """Differences as lines, those of one path below one heading."""
    heading = None
    for row in rows:
        if row.path != heading:
            yield row.path
        heading = row.path
        sides = (("-", value_text(row.path, row.before)), ("+", value_text(row.path, row.after)))
        yield from (f"  {sign} {value}" for sign, value in sides if value)


def differences(path: str, before: object, after: object) -> Iterator[Difference]:
    """The values that differ, by path; what one side lacks is None there."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            yield from differences(f"{path}.{key}".strip("."), before.get(key), after.get(key))
    elif path == "decisions" and isinstance(before, list) and isinstance(after, list):
        old, new = (dict.fromkeys(map(_in_words, rows)) for rows in (before, after))
        yield from (Difference(path, row, None) for row in old if row not in new)
        yield from (Difference(path, None, row) for row in new if row not in old)
    else:
        yield Difference(path, before, after)


def value_text(path: str, value: object) -> str:
    """A value as one reads it, by the last word of its path."""
    name = path.rpartition(".")[2]
    match value:
        case None:
            return {"limits.maxModelLen": "the model's own length", "dtype": "Auto"}.get(path, "")
        case list() if name == "sizes":
            phase = Phase.Prefill if Phase.Prefill in path else Phase.Decode
            return ladder_text(value, ROWS[phase]) if value else "none"
        case list() if name == "gaps":
            return gaps_text(value) or "none"
        case [*items]:
            return ", ".join(_short(item) for item in items)
        case bool():
            return str(value).lower()
        case int() if name.lower().endswith("bytes"):
            # of the spec, a round number; else an estimate
            return as_quantity(value) if name.endswith("_bytes") else size(value)
        case int() | float() if name.lower().endswith("seconds"):
            return duration(value)
        case int() if name in UNITS:
            return f"{value} {UNITS[name]}"
        case _:
            return str(value)


UNITS = {
    **dict.fromkeys(("maxModelLen", "kvTokens", "prefillChunk", "max_model_len", "prefill_chunk"), "tokens"),
    **dict.fromkeys(("maxBatch", "max_batch"), "sequences"),
}
"""Of numbers by the last word of their path: in the explanation and in engine.json."""


def _in_words(decision: Mapping[str, Any]) -> str:
    """In words; an adjustment is the same whatever policy it adjusts, the others speak of one."""
    policy = "" if decision["outcome"] == Outcome.Adjusted.value else f" {decision.get('policy', '')}".rstrip()
    return f"{decision['rule']} ({decision['phase']}{policy}, {decision['outcome']}): {decision['because']}"


def _short(item: object) -> str:
    return str(item.get("rule") or item) if isinstance(item, dict) else str(item)


def _pods(old: Desired | Refused, new: Desired | Refused) -> tuple[str, bool]:
    if isinstance(new, Refused):
        return (
            f"The operator refuses the new spec ({new.reason.name}), and the pods stay as they are: {new.what}",
            False,
        )
    if isinstance(old, Refused):
        return f"The operator refuses the old spec ({old.reason.name}) and rolls out the new one.", True
    if _template(old) != _template(new):
        return _replacement(old, new), True
    if old.replicas != new.replicas:
        return f"No pod is replaced; replicas go from {_replicas(old)} to {_replicas(new)}.", False
    if [child.body for child in old.children] != [child.body for child in new.children]:
        return "No pod is replaced; other fields of the service's objects change.", False
    return "Nothing changes in the cluster.", False


def _replacement(old: Desired, new: Desired) -> str:
    """How pods of another template take the place of the old ones, and whether the service answers meanwhile."""
    before, after = (next(child for child in one.children if child.resource in WORKLOADS) for one in (old, new))
    if before.resource is after.resource:
        how = "Every pod is replaced, one after the other: the pod template changes."
        away = most_unavailable(after.body) >= new.fewest
    else:
        how = f"Every pod is replaced: a {after.resource.name} makes the pods instead of the {before.resource.name}."
        away = not surges(after.body)
    gap = " The service does not answer until a new pod is Ready." if away and old.fewest and new.fewest else ""
    return how + gap


def _desired(explanation: Explanation, images: Images) -> Desired | Refused:
    """What the operator would make of it, under one name and uid for both sides."""
    metadata = {"name": "x", "namespace": "x", "uid": "x", "resourceVersion": "0"}
    named = {**explanation.manifest.raw, "metadata": metadata}
    return desire(PlanInput(Service.of(named), Installation(images)))


def _template(desired: Desired) -> object:
    return desired.workload


def _replicas(desired: Desired) -> str:
    return str(desired.replicas) if desired.replicas is not None else f"{desired.fewest} or more, by an autoscaler,"
