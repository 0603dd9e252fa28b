"""Memories that are lost, made again from what runs, and such that are none. What is proved, `revision_proof` says."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from graphpod_operator.api.names import config_name
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.kube.port import Cluster
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan import revision_proof
from graphpod_operator.plan.desired import Desired, Refused

log = logging.getLogger("graphpod_operator.recollect")

_From = tuple[Service, str, str]
"""A service but for its status, and of its Deployment the revision and the fingerprint of its fields of ours."""


class RevisionRecovery:
    """Looks after the memories of all services."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._told: dict[Key, set[str]] = {}
        """Memories (by uid) that are none and were told of."""
        self._sought: dict[Key, tuple[_From, Child | None]] = {}
        """What a look for a lost memory found, and what it went by: one that cannot be written stays lost."""

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._told.pop(key, None)
        self._sought.pop(key, None)

    def none(self, found: Service, memories: Iterable[Child]) -> list[str]:
        """Which of a service's memories are none, and why, in words; each is told once."""
        said = []
        for memory in memories:
            trouble = memory.kept.trouble if memory.kept is not None else None
            if trouble is None or memory.uid in self._told.get(found.key, ()) or not is_ours(found, memory):
                continue
            self._told.setdefault(found.key, set()).add(memory.uid)
            child = f"ControllerRevision {memory.name}"
            log.warning("a memory is none", extra={"child": child, "why": trouble})
            said.append(f"{child}: {trouble}")
        return said

    async def lost(
        self, found: Service, memories: tuple[Child, ...], running: Child | None, outcome: Desired | Refused
    ) -> Child | None:
        """The memory of what runs, if it is gone and would not come back by itself. Raises the port's errors."""
        ours = [child for child in memories if is_ours(found, child)]
        if running is None or not is_ours(found, running) or not revision_proof.lost(running, ours):
            self._sought.pop(found.key, None)
            return None
        if isinstance(outcome, Desired) and outcome.revision == running.revision:
            return None  # this operator makes the same
        by = replace(found, version=0, status={}), running.revision, running.owned
        if (sought := self._sought.get(found.key)) is not None and sought[0] == by:
            return sought[1]
        live = await self._cluster.get(running.resource, running.namespace, running.name)
        if live is None or not revision_proof.lost(running := Child.of(running.resource, live), ours):
            return None
        name = config_name(found.key.name, revision_proof.configuration(live))
        config = await self._cluster.get(Resource.ConfigMap, running.namespace, name)
        rebuilt = revision_proof.rebuilt(found, running, memories, live, config) if config is not None else None
        proved = "made again from what runs" if rebuilt is not None else "what runs does not prove it"
        log.warning("a memory is gone", extra={"revision": running.revision, "why": proved})
        self._sought[found.key] = by, rebuilt
        return rebuilt
