"""Which of a service's old ConfigMaps and ControllerRevisions may go, and the deletes of those.

A ReplicaSet that is kept for a rollback names its ConfigMap, and so does a pod that still runs: deleting it would keep
that pod from ever starting again. So they are judged by fresh lists, never by the watch cache. Groups of pods have no
ReplicaSets, and one that is made again during a rollout has no pods for a while: kept memories name theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain

from graphpod_operator.api.names import HASH_ANNOTATION, source_hosts_name
from graphpod_operator.apply.applier import Applier
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.controller_revision import ENGINE, StoredRevision
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.service_memory import ServiceMemory
from graphpod_operator.cache.store import Store
from graphpod_operator.kube import bounds
from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.cluster import Cluster, Raw, T
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.render.workload.deployment import HISTORY
from graphpod_operator.watch.informer import owned_by
from graphpod_policy import config_hash

PRUNED = (Resource.ConfigMap, Resource.ControllerRevision)
PRUNE_SECONDS = 10.0
"""Until old ReplicaSets are looked at again: they are not watched, and go some time after the rollout."""


@dataclass(frozen=True, slots=True)
class GarbageCollector:
    """Looks at each service's old objects by fresh lists, at most once in PRUNE_SECONDS."""

    cluster: Cluster
    store: Store
    clock: Clock
    applier: Applier

    async def prune(self, found: Service, desired: Desired, memory: ServiceMemory) -> float | None:
        """Delete old memories and configurations that nothing names. Seconds until the next look, if one is needed."""
        known = [child for kind in PRUNED for child in self.store.children(found.key, kind)]
        if not overgrown(found, desired, known):
            memory.pruned = float("-inf")
            return None
        now = self.clock.monotonic()
        if (wait := memory.pruned + PRUNE_SECONDS - now) > 0:
            return wait
        memory.pruned = now

        async def fresh(resource: Resource, keep: Callable[[Raw], T]) -> tuple[T, ...]:
            return (await self.cluster.list(resource, found.key.namespace, owned_by(found.key.name), keep)).items

        named = [await fresh(resource, named_by) for resource in (Resource.ReplicaSet, Resource.Pod)]
        if any(None in names for names in named):
            return PRUNE_SECONDS  # what was not read may name any
        maps, revisions = [await fresh(resource, partial(Child.of, resource)) for resource in PRUNED]
        lists = Lists(maps, revisions, frozenset(filter(None, chain(*named))))
        doomed = superfluous(found, desired, lists)
        for child in doomed:
            await self.applier.delete(child, "no longer named")
        left = {*lists.config_maps, *lists.revisions}.difference(doomed)
        return PRUNE_SECONDS if overgrown(found, desired, left) else None


@dataclass(frozen=True, slots=True)
class Lists:
    """Everything that carries a service's label, as it is now."""

    config_maps: tuple[Child, ...]
    revisions: tuple[Child, ...]
    named: frozenset[str]
    """Hashes of the configurations that its ReplicaSets and pods have."""


def overgrown(found: Service, desired: Desired, children: Iterable[Child]) -> bool:
    """Whether, by the watch cache, more of a kind is left over than a rollback may want."""
    counts = dict.fromkeys(PRUNED, 0)
    for child in _left_over(found, desired, children):
        counts[child.resource] += 1
    return any(count > HISTORY for count in counts.values())


def superfluous(found: Service, desired: Desired, lists: Lists) -> list[Child]:
    """What nothing names: ConfigMaps that no ReplicaSet and no pod has, and all but the newest old memories."""
    memories = sorted(
        _left_over(found, desired, lists.revisions),
        key=lambda child: child.kept.number if child.kept is not None else 0,
    )
    named = lists.named
    if desired.kind is Resource.LeaderWorkerSet:
        named |= {config_hash(kept.data[ENGINE].encode()) for kept in _readable(memories[-HISTORY:])}
    maps = [
        child for child in _left_over(found, desired, lists.config_maps) if child.name.rpartition("-")[2] not in named
    ]
    return maps + memories[:-HISTORY]


def _readable(memories: Iterable[Child]) -> Iterator[StoredRevision]:
    """What these memories keep, where it can be read."""
    kept = (child.kept for child in memories if child.kept is not None)
    return (one for one in kept if one.trouble is None)


def _left_over(found: Service, desired: Desired, children: Iterable[Child]) -> list[Child]:
    """What is this very service's, and not wanted any more. Pods that still stream may mount the list of hosts, which
    no hash names: it goes with the service.
    """
    wanted = {(child.resource, child.name) for child in desired.children}
    wanted.add((Resource.ConfigMap, source_hosts_name(found.key.name)))
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
