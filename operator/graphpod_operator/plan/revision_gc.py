"""Which of a service's old ConfigMaps and ControllerRevisions may go. Pure.

A ReplicaSet that is kept for a rollback names its ConfigMap, and so does a pod that still runs: deleting it would keep
that pod from ever starting again. So they are judged by fresh lists, never by what a watch told last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphpod_operator.api.names import HASH_ANNOTATION
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.kube import bounds
from graphpod_operator.kube.port import Raw
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired import Desired
from graphpod_operator.render.deployment import HISTORY

PRUNED = (Resource.ConfigMap, Resource.ControllerRevision)


@dataclass(frozen=True, slots=True)
class Lists:
    """Everything that carries a service's label, as it is now."""

    config_maps: tuple[Child, ...]
    revisions: tuple[Child, ...]
    named: frozenset[str]
    """Hashes of the configurations that its ReplicaSets and pods have."""


def overgrown(found: Service, desired: Desired, children: Iterable[Child]) -> bool:
    """Whether, by what the watches told, more of a kind is left over than a rollback may want."""
    counts = dict.fromkeys(PRUNED, 0)
    for child in _left_over(found, desired, children):
        counts[child.resource] += 1
    return any(count > HISTORY for count in counts.values())


def superfluous(found: Service, desired: Desired, lists: Lists) -> list[Child]:
    """What nothing names: ConfigMaps that no ReplicaSet and no pod has, and all but the newest old memories."""
    maps = [
        child
        for child in _left_over(found, desired, lists.config_maps)
        if child.name.rpartition("-")[2] not in lists.named
    ]
    memories = sorted(
        _left_over(found, desired, lists.revisions),
        key=lambda child: child.kept.number if child.kept is not None else 0,
    )
    return maps + memories[:-HISTORY]


def _left_over(found: Service, desired: Desired, children: Iterable[Child]) -> list[Child]:
    """What is this very service's, and not wanted any more."""
    wanted = {(child.resource, child.name) for child in desired.children}
    return [
        child
        for child in children
        if child.resource in PRUNED and (child.resource, child.name) not in wanted and is_ours(found, child)
    ]


def named_by(raw: Raw) -> str | None:
    """The configuration that a pod, or a ReplicaSet's template of one, names; None of one that was not read."""
    if bounds.BREACH in raw:
        return None
    raw = (raw.get("spec") or {}).get("template") or raw
    annotations: Mapping[str, str] = (raw.get("metadata") or {}).get("annotations") or {}
    return annotations.get(HASH_ANNOTATION, "")
