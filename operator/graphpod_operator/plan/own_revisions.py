"""The renderings that a service keeps in its own ControllerRevisions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.plan.plan_input import PlanInput


@dataclass(frozen=True, slots=True)
class OwnRevision:
    """A ControllerRevision that is ours to go by; without `data` it cannot be read."""

    name: str
    number: int
    data: Mapping[str, str] | None


def own_revisions(found: Service, revisions: Iterable[Child]) -> list[OwnRevision]:
    """This very service's memories, the newest last."""
    ours = ((child.name, child.kept) for child in revisions if child.kept is not None and is_ours(found, child))
    made = [OwnRevision(name, kept.number, kept.data if kept.trouble is None else None) for name, kept in ours]
    return sorted(made, key=lambda one: (one.number, one.name))


def running_as(given: PlanInput, kept: Iterable[OwnRevision]) -> Mapping[str, str] | None:
    """What is kept of the rendering that runs."""
    revision = given.running.revision if given.running is not None else ""
    return kept_as(f"{given.found.key.name}-{revision}", kept)


def kept_as(name: str, kept: Iterable[OwnRevision]) -> Mapping[str, str] | None:
    """What is kept under the name of a ControllerRevision."""
    return next((one.data for one in kept if one.name == name), None)
