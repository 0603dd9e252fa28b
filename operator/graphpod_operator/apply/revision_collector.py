"""Deletes a service's old ConfigMaps and ControllerRevisions that nothing names. `revision_gc` says which."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain

from graphpod_operator.apply.applier import Applier
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Store
from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.port import Cluster, Raw, T
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan import revision_gc
from graphpod_operator.plan.desired import Desired
from graphpod_operator.watch.feed import owned_by

PRUNE_SECONDS = 10.0
"""Until old ReplicaSets are looked at again: they are not watched, and go some time after the rollout."""


class RevisionCollector:
    """Looks at each service's old objects by fresh lists, at most once in PRUNE_SECONDS."""

    def __init__(self, cluster: Cluster, store: Store, clock: Clock, applier: Applier) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._applier = applier
        self._pruned: dict[Key, float] = {}
        """When the old ones of a service were looked at last."""

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._pruned.pop(key, None)

    async def prune(self, found: Service, desired: Desired) -> float | None:
        """Delete old memories and configurations that nothing names. Seconds until the next look, if one is needed."""
        known = [child for kind in revision_gc.PRUNED for child in self._store.children(found.key, kind)]
        if not revision_gc.overgrown(found, desired, known):
            self._pruned.pop(found.key, None)
            return None
        now = self._clock.monotonic()
        if (wait := self._pruned.get(found.key, float("-inf")) + PRUNE_SECONDS - now) > 0:
            return wait
        self._pruned[found.key] = now

        async def fresh(resource: Resource, keep: Callable[[Raw], T]) -> tuple[T, ...]:
            return (await self._cluster.list(resource, found.key.namespace, owned_by(found.key.name), keep)).items

        named = [await fresh(resource, revision_gc.named_by) for resource in (Resource.ReplicaSet, Resource.Pod)]
        if any(None in names for names in named):
            return PRUNE_SECONDS  # what was not read may name any
        maps, revisions = [await fresh(resource, partial(Child.of, resource)) for resource in revision_gc.PRUNED]
        lists = revision_gc.Lists(maps, revisions, frozenset(filter(None, chain(*named))))
        doomed = revision_gc.superfluous(found, desired, lists)
        for child in doomed:
            await self._applier.delete(child, "no longer named")
        left = {*lists.config_maps, *lists.revisions}.difference(doomed)
        return PRUNE_SECONDS if revision_gc.overgrown(found, desired, left) else None
