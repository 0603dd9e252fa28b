"""One write at a time: looked at live, carried out, and its answer taken into the store at once.

Whatever the store knows may be stale, so a child is looked at live before it is created or deleted. An apply that
creates is refused where an object was made since that look, a later one names the uid it means, and after a conflict
the child is looked at again.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Store
from graphpod_operator.kube.field_ownership import HOLDER
from graphpod_operator.kube.port import Cluster, Conflict, ServerRefused
from graphpod_operator.kube.resources import OPTIONAL, Resource
from graphpod_operator.plan.changes import Create, Delete, HandOver, Update, Write, foreign
from graphpod_operator.plan.desired import DesiredChild, Refused
from graphpod_operator.telemetry.metrics import Meters
from graphpod_operator.watch.optional_kinds import Gone, OptionalKinds

log = logging.getLogger("graphpod_operator.executor")


class Applier:
    """Carries out what the planner wants written, child by child."""

    def __init__(self, cluster: Cluster, store: Store, meters: Meters, kinds: OptionalKinds) -> None:
        self._cluster = cluster
        self._store = store
        self._meters = meters
        self._kinds = kinds
        self._normalised: dict[tuple[Resource, str, str], tuple[str, str, Key | None]] = {}
        """Of children that the API server stored otherwise than they were applied: both fingerprints, and whose."""

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._normalised = {place: known for place, known in self._normalised.items() if known[2] != key}

    def look(self, resource: Resource, namespace: str, name: str) -> Child | None:
        """A child by name, as the planner compares it."""
        live = self._store.child(resource, namespace, name)
        wanted, stored, _ = self._normalised.get((resource, namespace, name), ("", "", None))
        same = live is not None and wanted and live.owned == stored
        return replace(live, owned=wanted, applied=wanted) if live is not None and same else live

    async def look_again(self, wanted: DesiredChild) -> Child | None:
        """The store may be wrong about a child: take in what is, and return it."""
        raw = await self._cluster.get(wanted.resource, wanted.namespace, wanted.name)
        if raw is not None:
            self._store.observe(live := Child.of(wanted.resource, raw))
            return live
        if (ghost := self._store.child(wanted.resource, wanted.namespace, wanted.name)) is not None:
            self._store.delete(ghost)
        return None

    async def confirm(self, found: Service, write: Write) -> Write | Refused | None:
        """What is still to be done after a live look: the write, another one, nothing, or a refusal. A repair needs
        none, it names the uid it means.
        """
        if isinstance(write, Update | HandOver):
            return write
        if isinstance(write, Delete):
            known = write.child
            raw = await self._cluster.get(known.resource, known.namespace, known.name)
            still = Child.of(known.resource, raw) if raw is not None else None
            return Delete(still) if still is not None and is_ours(found, still) else None
        wanted = write.wanted
        raw = await self._cluster.get(wanted.resource, wanted.namespace, wanted.name)
        if raw is None:
            return write
        live = Child.of(wanted.resource, raw)
        if (stranger := foreign(found, wanted, live)) is not None:
            return stranger
        self._store.observe(live)
        return Update.of(wanted, live)

    async def expect(self, found: Service) -> None:
        """Before children that vanished are made anew, or pods are: the service may have gone with them, of which
        another watch tells later, or be one of a backup. Raises Conflict when a live look finds that; then the store
        knows, too.
        """
        raw = await self._cluster.get(Resource.InferenceService, found.key.namespace, found.key.name)
        live = Service.of(raw) if raw is not None else None
        if live is None or live.uid != found.uid:
            self._store.delete(found)
            raise Conflict(404, f"{found.key} was deleted")
        self.believe(found, live)
        if live.deleting:
            self._store.observe(live)
            raise Conflict(404, f"{found.key} was deleted, and ends")
        # an edit that it may have is left to the watch, which queues it

    def believe(self, found: Service, live: Service) -> None:
        """Raises Conflict where an answer tells less of a service than was known: its cluster was restored from a
        backup. Then the store has what was answered.
        """
        if live.version < found.version or live.generation < found.generation:
            if self._store.known(found) is found:
                self._store.forget(found)  # it may count as newer than what is
            self._store.observe(live)
            raise Conflict(409, f"{found.key} was put back from generation {found.generation} to {live.generation}")

    async def carry_out(self, write: Write, drift: bool) -> None:
        """Carry out a confirmed write. `drift`: it puts back what somebody changed or deleted. Raises Gone when the
        object's kind is not there any more, else the port's errors.
        """
        match write:
            case Delete(child):
                await self.delete(child, "no longer wanted" if child.kept is None else "cannot be read")
            case HandOver():
                await self._hand_over(write)
            case Create() | Update():
                await self._apply(write, drift)

    async def delete(self, child: Child, why: str) -> None:
        """Delete exactly this object; `why` is for the log. Raises the port's errors."""
        await self._cluster.delete(child.resource, child.namespace, child.name, child.uid)
        self._store.delete(child)
        log.info("child deleted", extra={**_told(child), "why": why})

    async def _apply(self, write: Create | Update, drift: bool) -> None:
        wanted = write.wanted
        body = wanted.to_apply(write.uid if isinstance(write, Update) else None)
        if isinstance(write, Update) and write.version is not None:
            body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(write.version)}}
        try:
            raw = await self._cluster.apply(wanted.resource, body, force=isinstance(write, Update))
        except Conflict:
            self._meters.count("graphpod_operator_apply_conflicts_total", kind=wanted.resource.kind)
            if isinstance(write, Update):  # what stands in the way of a new one is looked at live by the next try
                await self.look_again(wanted)
            raise
        except ServerRefused as error:
            if error.status == 404 and wanted.resource in OPTIONAL:
                await self._kinds.look()
                if wanted.resource in self._kinds.absent:
                    raise Gone(error.status, f"{wanted}: its kind has gone") from error
            raise
        stored = Child.of(wanted.resource, raw)
        self._store.observe(stored)
        if stored.owned != wanted.owned:
            # never true for what `render` makes (tested); if a server differs, it must not become an endless loop
            log.warning("the API server changed fields we applied; taking its form", extra=_told(wanted))
            self._normalised[wanted.resource, wanted.namespace, wanted.name] = (wanted.owned, stored.owned, stored.key)
        if drift:
            self._meters.count("graphpod_operator_drift_corrections_total", kind=wanted.resource.kind)
            log.info("child put back", extra=_told(wanted))
        else:
            log.info("child %s", "created" if isinstance(write, Create) else "changed", extra=_told(wanted))

    async def _hand_over(self, write: HandOver) -> None:
        child = write.child
        # not by force: whoever has changed the number meanwhile means another
        raw = await self._cluster.apply(child.resource, write.body, force=False, manager=HOLDER)
        self._store.observe(Child.of(child.resource, raw))
        log.info("the number of pods handed over", extra={**_told(child), "pods": write.replicas})


def _told(child: DesiredChild | Child) -> dict[str, str]:
    """A child as a line of the log tells it; the service it belongs to has the line's `object`."""
    return {"child": f"{child.resource.kind} {child.name}"}
