"""A service as a cluster has it: planned, running, pinned, and what adopting today's rendering would change. Pure.

What runs is what its status says; what it was made from, and goes on with, is in its ControllerRevision. The operator
in the cluster may be of another version than this program and have another default image, so the revision to adopt is
the one that the operator's own conditions name, and the pods are compared under the image they have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import ADOPT_ANNOTATION, SHORT_NAME
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.explain.diff import Difference, differences, lines
from graphpod_operator.explain.explanation import Explanation
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.installation import Installation
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.config_map import KEY
from graphpod_operator.render.pod.group_key import GROUP_KEY
from graphpod_policy import Phase

OFFERS = (ConditionType.EngineUpdateAvailable, ConditionType.PolicyUpdateAvailable)
_COMMAND = re.compile(r"; kubectl (?:-n \S+ )?annotate .*")
"""The end of such a condition: the text has the command once, for the namespace of the object."""
UNKNOWN = "unknown"
"""What a status that was edited, or not written yet, does not say."""


@dataclass(frozen=True, slots=True)
class LivePhase:
    """One phase of a live service; `adopted` is what the rules of this program plan for its spec, None where they
    refuse it.
    """

    phase: Phase
    planned: str | None
    effective: str | None
    adopted: str | None


@dataclass(frozen=True, slots=True)
class Pinned:
    """The rendering a service keeps: its name, of how many that are kept, the image, and how today's would differ.

    `refused`: why today's rules would not have it.
    """

    name: str
    kept: int
    image: str
    differences: tuple[Difference, ...]
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """What status and revisions say, and what this program's rules say."""

    phases: tuple[LivePhase, ...]
    captured: str | None
    revision: str | None
    config_hash: str | None
    adopts: bool
    """Whether adopting this program's rules would change the engine's configuration."""
    offers: tuple[str, ...]
    """What the operator in the cluster says it would do otherwise."""
    pinned: Pinned | None
    serves: Raw
    """status.engine: context, batch and KV tokens that the pods report."""

    @property
    def offered(self) -> str | None:
        """The revision that those words name."""
        found = (re.search(r"\brevision ([0-9a-f]{10})\b", offer) for offer in self.offers)
        return next((one.group(1) for one in found if one), None)


def live(explanation: Explanation, revisions: Iterable[Child] = ()) -> Live | None:
    """What status in the manifest and the service's ControllerRevisions say; None when both say nothing."""
    raw = explanation.manifest.raw
    pinned = _pinned(raw, revisions)
    graph = _map(raw, "status", "graph")
    if not graph and pinned is None:
        return None
    config_hash = _text(graph, "configHash")
    return Live(
        phases=tuple(
            LivePhase(
                phase,
                _text(graph, phase.value, "planned"),
                _text(graph, phase.value, "effective"),
                explanation.plan.phases[phase].planned.value if explanation.accepted else None,
            )
            for phase in Phase
        ),
        captured=_text(graph, "captured"),
        revision=_text(graph, "resolverRevision"),
        config_hash=config_hash,
        adopts=explanation.accepted and config_hash is not None and config_hash != explanation.config_hash,
        offers=tuple(_offers(raw)),
        pinned=pinned,
        serves=_map(raw, "status", "engine"),
    )


def as_plain(found: Live, explanation: Explanation) -> dict[str, Any]:
    """Plain values, for `-o json` and `-o yaml`."""
    rows = {
        row.phase.value: {"planned": row.planned, "effective": row.effective, "adopted": row.adopted}
        for row in found.phases
    }
    return {
        **rows,
        "captured": found.captured,
        "limits": {name: found.serves.get(name) for name in ("maxModelLen", "maxBatch", "kvTokens")},
        "resolverRevision": found.revision,
        "configHash": found.config_hash,
        "pinned": _pinned_plain(found.pinned),
        "adopting": {
            "resolverRevision": explanation.plan.resolver_revision,
            "configHash": explanation.config_hash,
            "changes": found.adopts,
            "offered": found.offered,
            "offers": list(found.offers),
        },
    }


def live_text(found: Live, explanation: Explanation) -> str:
    """The live part as text, ending with a newline."""
    lines_there = [
        "In the cluster",
        *(
            f"  {row.phase:<9} planned {row.planned or UNKNOWN}, running {row.effective or 'nothing yet'}"
            for row in found.phases
        ),
        f"  captured  {found.captured or UNKNOWN}, configuration {found.config_hash or 'none'}, "
        f"rules {found.revision or UNKNOWN}",
        *([f"  serves    {serves}"] if (serves := _text(found.serves, "display")) else ()),
        *([_pinned_text(found.pinned)] if found.pinned else ()),
        _adopting(found, explanation),
        *_pods(found.pinned),
        *(f"  {_COMMAND.sub('', offer)}" for offer in found.offers),
        *_how(found, explanation),
    ]
    return "\n".join(lines_there) + "\n"


def _pinned(raw: Raw, revisions: Iterable[Child]) -> Pinned | None:
    """The rendering in use, when the service is a live one and has one for its spec."""
    if not (memories := list(revisions)):
        return None
    found = Service.of(raw)
    kept = desire(PlanInput(found, Installation(), memories))
    if isinstance(kept, Refused):
        return None
    memory = _child(kept, Resource.ControllerRevision)["metadata"]["name"]
    if memory not in {one.name for one in memories}:
        return None
    template = kept.workload["template"]
    image: str = template["spec"]["containers"][0]["image"]
    fresh = desire(PlanInput(found, Installation(Images(image, image))))
    if isinstance(fresh, Refused):
        return Pinned(memory, len(memories), image, (), f"{fresh.reason.name}: {fresh.what}")
    return Pinned(memory, len(memories), image, tuple(differences("", _made(kept), _made(fresh))))


def _made(desired: Desired) -> dict[str, Any]:
    """What the engine and its pod are made of, without the names and marks that follow from it."""
    spec = desired.workload["template"]["spec"]
    volumes = [volume for volume in spec["volumes"] if volume["name"] != "config"]
    engine = json.loads(_child(desired, Resource.ConfigMap)["data"][KEY])
    return {"engine": engine, "pod": _by_name({**spec, "volumes": volumes})}


def _child(desired: Desired, resource: Resource) -> Mapping[str, Any]:
    return next(child.body for child in desired.children if child.resource is resource)


def _by_name(value: Any) -> Any:
    """Lists of things that have names, as maps by name: their order says nothing, and a path says which is meant. A
    group's key is not shown, which pods of earlier versions have in their environment.
    """
    if isinstance(value, dict):
        return {key: _by_name(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and all(isinstance(one, dict) and "name" in one for one in value):
        named = {one["name"]: _by_name({key: each for key, each in one.items() if key != "name"}) for one in value}
        return named | ({GROUP_KEY: {"value": "not shown"}} if "value" in named.get(GROUP_KEY, {}) else {})
    return value


def _offers(raw: Raw) -> Iterable[str]:
    conditions = _map(raw, "status").get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if _text(one, "type") in OFFERS and _text(one, "status") == "True":
            yield f"{one['type']}: {_text(one, 'message') or UNKNOWN}"


def _pinned_plain(pinned: Pinned | None) -> dict[str, Any] | None:
    if pinned is None:
        return None
    rows = [{"path": row.path, "before": row.before, "after": row.after} for row in pinned.differences]
    return {
        "name": pinned.name,
        "kept": pinned.kept,
        "image": pinned.image,
        "refused": pinned.refused,
        "differences": rows,
    }


def _pinned_text(pinned: Pinned) -> str:
    return f"  pinned    {pinned.name}, one of {pinned.kept} kept; image {pinned.image}"


def _adopting(found: Live, explanation: Explanation) -> str:
    mine = explanation.plan.resolver_revision
    if not explanation.accepted:
        return f"  The rules {mine} refuse the spec: there is nothing to adopt."
    if not found.adopts:
        same = "the same rules" if mine == found.revision else f"the rules {mine}"
        return f"  Adopting {same} changes nothing in the engine's configuration."
    changed = [
        f"{row.phase} {row.planned} → {row.adopted}" for row in found.phases if row.planned not in (None, row.adopted)
    ]
    what = ", ".join(changed) if changed else "sizes or other settings, no policy"
    return (
        f"  Adopting the rules {mine} gives configuration {explanation.config_hash} ({what}) "
        "and replaces every pod, one after the other."
    )


def _pods(pinned: Pinned | None) -> Iterable[str]:
    """How what this program would make differs from what is pinned."""
    if pinned is None:
        return ()
    if pinned.refused is not None:
        return (f"  This program's rules reject the spec ({pinned.refused}); the pods keep running.",)
    if not pinned.differences:
        return ("  This program would create the same pods, except for their image.",)
    lines_there = [f"    {line}" for line in lines(pinned.differences)]
    return ("  This program would change this part of the pinned rendering, besides the image:", *lines_there)


def _how(found: Live, explanation: Explanation) -> Iterable[str]:
    if found.offered is None:
        return ()
    entry = explanation.manifest
    return (
        "  To adopt it, once:",
        f"    kubectl annotate {SHORT_NAME} {entry.name} -n {entry.namespace} "
        f"{ADOPT_ANNOTATION}={found.offered} --overwrite",
    )


def _map(value: Any, *path: str) -> Raw:
    """The map at a path; empty where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _text(value: Any, *path: str) -> str | None:
    """The text at a path, or None."""
    *where, last = path
    found = _map(value, *where).get(last)
    return found if isinstance(found, str) else None
