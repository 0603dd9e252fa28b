"""The one way to write a child: planned against what is there, looked at live, carried out, and its answer taken into
the store at once.

Whatever the store knows may be stale, so a child is looked at live before it is created or deleted. An apply that
creates is refused where an object was made since that look, a later one names the uid it means, and after a conflict
the child is looked at again.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from graphpod_operator.apply.drift_backoff import PutBacks
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.service_memory import RefusedBody, ServiceMemory
from graphpod_operator.cache.store import Store
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.events.recorder import EventRecorder
from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.cluster import ApiError, Cluster, Conflict, NotLeading, ServerRefused, Terminating
from graphpod_operator.kube.field_ownership import HOLDER, changed_fields, desired_fields, owned_fields
from graphpod_operator.kube.resources import ADDITIONS, OPTIONAL, WORKLOADS, Resource
from graphpod_operator.plan import replica_handover
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.refused import Refused
from graphpod_operator.plan.refused_field import blamed
from graphpod_operator.plan.writes import Create, Delete, HandOver, Look, Update, Write, foreign
from graphpod_operator.render.pod import group_key
from graphpod_operator.telemetry.metrics import Meters
from graphpod_operator.watch.optional_kinds import Gone, OptionalKinds

log = logging.getLogger(__name__)

ALTERED_FIELDS = 3
"""Of an object that admission changed: as many are named."""
KEY_BYTES = 32
"""Random bytes of the key of a service's groups."""
AGAIN_SECONDS = 300.0
"""After which a body that was refused is sent again: another version of the API server, or another admission rule, may
take it.
"""


@dataclass(slots=True)
class Applied:
    """What became of a desired state so far."""

    writes: list[Write] = field(default_factory=list)
    """What was written."""
    held_up: dict[Resource, ApiError] = field(default_factory=dict)
    """What went wrong with objects of optional kinds, which hold up no other."""
    again: float | None = None
    """Seconds until what somebody changes again and again is put back."""

    @property
    def rolls_out(self) -> bool:
        """Whether what makes the pods was written."""
        return any(map(_rolls_out, self.writes))


@dataclass(frozen=True, slots=True)
class Applier:
    """Makes the children of services as they are desired."""

    cluster: Cluster
    store: Store
    meters: Meters
    clock: Clock
    kinds: OptionalKinds
    events: EventRecorder
    put_backs: PutBacks

    async def apply(self, found: Service, desired: Desired, memory: ServiceMemory, done: Applied) -> Refused | None:
        """Bring the children in order, or say why none of them may be written. `done` gets what was written and what
        was not, also when an error of the port's ends it.
        """
        look = partial(self._look, memory)
        while True:
            needed = replica_handover.writes(found, desired, look)
            if not isinstance(needed, Refused) and any(replica_handover.passes(desired, write) for write in needed):
                workload = replica_handover.workload_of(desired)
                live = await self._look_again(workload)
                needed = replica_handover.writes(found, desired, _knowing(workload, live, look))
            if isinstance(needed, Refused):
                return needed
            before = len(done.writes)
            if (refused := await self._write(found, desired, needed, memory, done)) is not None:
                return refused
            now = done.writes[before:]
            if not (replica_handover.goes_on(desired, now) or any(map(_makes_way, now))):
                memory.refused = None
                return None

    async def make_key(self, desired: Desired) -> None:
        """Make the Secret with the key of the service's groups, unless it exists. Raises the port's errors."""
        if (name := group_key.secret_of(desired.workload)) is None:
            return
        sibling = next(one for one in desired.children if one.resource is Resource.ServiceAccount)
        if await self.cluster.create(
            Resource.Secret, group_key.secret(sibling.body, name, secrets.token_hex(KEY_BYTES))
        ):
            log.info("child created", extra={"child": f"{Resource.Secret.kind} {name}"})

    async def delete(self, child: Child, why: str) -> None:
        """Delete exactly this object; `why` is for the log. Raises the port's errors."""
        await self.cluster.delete(child.resource, child.namespace, child.name, child.uid)
        self.store.delete(child)
        log.info("child deleted", extra={**_log_fields(child), "why": why})

    async def _write(
        self, found: Service, desired: Desired, needed: Iterable[Write], memory: ServiceMemory, done: Applied
    ) -> Refused | None:
        """Carry out these writes, but for those that give way; or say why none of them may be."""
        # all looks before the first write: a collision must leave the namespace as it was
        checked: list[Write] = []
        for write in needed:
            with _apart(write, done.held_up):
                if isinstance(confirmed := await self._confirm(found, write), Refused):
                    return confirmed
                if confirmed is not None:
                    checked.append(confirmed)
        before, altered = memory.in_order, dict[str, str]()
        recreated = any(isinstance(write, Create) and _place(write.wanted) in before for write in checked)
        if recreated or any(isinstance(write, Update) and _rolls_out(write) for write in checked):
            await self._expect(found)
        if any(map(_rolls_out, checked)):
            await self.make_key(desired)  # only then, so that a quiet service costs no request
        for write in checked:
            drift = False
            if isinstance(write, Create | Update):
                wanted = write.wanted
                drift = write.edited if isinstance(write, Update) else _place(wanted) in before
                mark = wanted.resource, found.uid, wanted.name
                if drift and (pause := await self.put_backs.pause(found, mark, str(wanted))) > 0:
                    done.again = min(pause, done.again or pause)
                    continue
            with _apart(write, done.held_up):
                changed = await self._carry_out(write, drift, memory)
                altered |= changed
                done.writes.append(write)
                drift = drift and not changed
            if drift and isinstance(write, Update) and _rolls_out(write):
                await self.events.warn(
                    found, Reason.PutBack, f"the {write.wanted.resource.kind} was changed and is put back"
                )
        if altered:
            what = "; ".join(f"{child}: {fields}" for child, fields in altered.items())
            await self.events.warn(found, Reason.ChangedAtAdmission, what)
        memory.in_order = frozenset(_place(one) for one in desired.children if one.resource not in done.held_up)
        return None

    def _look(self, memory: ServiceMemory, resource: Resource, namespace: str, name: str) -> Child | None:
        """A child by name, as the planner compares it."""
        live = self.store.child(resource, namespace, name)
        wanted, stored = memory.normalised.get((resource, name), ("", ""))
        same = live is not None and wanted and live.owned == stored
        return replace(live, owned=wanted, applied=wanted) if live is not None and same else live

    async def _look_again(self, wanted: DesiredChild) -> Child | None:
        """The store may be wrong about a child: take in what is, and return it."""
        raw = await self.cluster.get(wanted.resource, wanted.namespace, wanted.name)
        if raw is not None:
            self.store.observe(live := Child.of(wanted.resource, raw))
            return live
        if (ghost := self.store.child(wanted.resource, wanted.namespace, wanted.name)) is not None:
            self.store.delete(ghost)
        return None

    async def _confirm(self, found: Service, write: Write) -> Write | Refused | None:
        """What is still to be done after a live look: the write, another one, nothing, or a refusal. A repair needs
        none, it names the uid it means.
        """
        if isinstance(write, Update | HandOver):
            return write
        known = write.child if isinstance(write, Delete) else write.wanted
        raw = await self.cluster.get(known.resource, known.namespace, known.name)
        live = Child.of(known.resource, raw) if raw is not None else None
        if isinstance(write, Delete):
            return Delete(live) if live is not None and is_ours(found, live) else None
        if live is None:
            return write
        if (stranger := foreign(found, write.wanted, live)) is not None:
            return stranger
        self.store.observe(live)
        return Update.of(write.wanted, live)

    async def _expect(self, found: Service) -> None:
        """Before vanished children, or pods, are created again: the service may have gone with them, which
        another watch reports later, or be one of a backup. Raises Conflict when a live read finds that; then the store
        knows, too.
        """
        raw = await self.cluster.get(Resource.InferenceService, found.key.namespace, found.key.name)
        live = Service.of(raw) if raw is not None else None
        if live is None or live.uid != found.uid:
            self.store.delete(found)
            raise Conflict(404, f"{found.key} was deleted")
        self.store.detect_restore(found, live)
        if live.deleting:
            self.store.observe(live)
            raise Conflict(404, f"{found.key} was deleted, and ends")
        # an edit that it may have is left to the watch, which queues it

    async def _carry_out(self, write: Write, drift: bool, memory: ServiceMemory) -> dict[str, str]:
        """Carry out a confirmed write. `drift`: it puts back what somebody changed or deleted. The object, and which
        of its fields were changed at admission. Raises Gone when the object's kind is not there any more, else the
        port's errors.
        """
        match write:
            case Delete(child):
                await self.delete(child, "no longer wanted" if child.kept is None else "cannot be read")
            case HandOver():
                await self._hand_over(write)
            case Create() | Update():
                return await self._send(write, drift, memory)
        return {}

    async def _send(self, write: Create | Update, drift: bool, memory: ServiceMemory) -> dict[str, str]:
        """Send a body, unless the server refused the same for a fault of the spec a short while ago: a service is
        looked at whenever one of its pods changes.
        """
        wanted, refused, now = write.wanted, memory.refused, self.clock.monotonic()
        if refused is not None and refused.owned == wanted.owned and now < refused.until:
            raise ServerRefused(refused.status, refused.message)
        body = wanted.to_apply(write.uid if isinstance(write, Update) else None)
        if isinstance(write, Update) and write.version is not None:
            body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(write.version)}}
        try:
            raw = await self.cluster.apply(wanted.resource, body, force=isinstance(write, Update))
        except Conflict:
            self.meters.count("graphpod_operator_apply_conflicts_total", kind=wanted.resource.kind)
            if isinstance(write, Update):  # what stands in the way of a new one is looked at live by the next try
                await self._look_again(wanted)
            raise
        except ServerRefused as error:
            if error.status == 404 and wanted.resource in OPTIONAL:
                await self.kinds.look()
                if wanted.resource in self.kinds.absent:
                    raise Gone(error.status, f"{wanted}: its kind has gone") from error
            if blamed(str(error)) is not None:
                memory.refused = RefusedBody(wanted.owned, error.status, str(error), now + AGAIN_SECONDS)
            raise
        stored = Child.of(wanted.resource, raw)
        self.store.observe(stored)
        altered: dict[str, str] = {}
        if stored.owned != wanted.owned:
            # never by the API server itself (tested); what admission does differently must not become an endless loop
            fields = list(islice(changed_fields(desired_fields(wanted.body), owned_fields(raw)), ALTERED_FIELDS))
            altered = {f"{wanted.resource.kind} {wanted.name}": ", ".join(fields)}
            extra = {**_log_fields(wanted), "fields": fields}
            log.warning("the API server changed fields we applied; taking its form", extra=extra)
            memory.normalised[_place(wanted)] = wanted.owned, stored.owned
        if drift and not altered:  # the same as before else: a new operator does not know what admission does
            self.meters.count("graphpod_operator_drift_corrections_total", kind=wanted.resource.kind)
            log.info("child put back", extra=_log_fields(wanted))
        else:
            log.info("child %s", "created" if isinstance(write, Create) else "changed", extra=_log_fields(wanted))
        return altered

    async def _hand_over(self, write: HandOver) -> None:
        child = write.child
        # not by force: whoever has changed the number meanwhile means another
        raw = await self.cluster.apply(child.resource, write.body, force=False, manager=HOLDER)
        self.store.observe(Child.of(child.resource, raw))
        log.info("the number of pods handed over", extra={**_log_fields(child), "pods": write.replicas})


@contextmanager
def _apart(write: Write, held_up: dict[Resource, ApiError]) -> Iterator[None]:
    """A write for an object of an optional kind holds up nothing else: what goes wrong with it is kept, for status to
    tell. What is not so any more at the next look (a conflict, a kind that has gone), or for nothing, is raised.
    """
    try:
        yield
    except (Conflict, Gone, NotLeading, Terminating):
        raise
    except ApiError as error:
        if not isinstance(write, Create | Update) or write.wanted.resource not in ADDITIONS:
            raise
        held_up[write.wanted.resource] = error


def _knowing(wanted: DesiredChild, live: Child | None, look: Look) -> Look:
    """A look that knows what one child is: the store has none that lost our label."""
    known = wanted.resource, wanted.namespace, wanted.name
    return lambda *place: live if place == known else look(*place)


def _place(wanted: DesiredChild) -> tuple[Resource, str]:
    """Which child of its service it is."""
    return wanted.resource, wanted.name


def _makes_way(write: Write) -> bool:
    """Whether what this deleted, a corrupt ControllerRevision, is to be created again."""
    return isinstance(write, Delete) and write.child.kept is not None


def _rolls_out(write: Write) -> bool:
    """Whether this writes what makes the pods."""
    return isinstance(write, Create | Update) and write.wanted.resource in WORKLOADS


def _log_fields(child: DesiredChild | Child) -> dict[str, str]:
    """A child as a log line names it; the service it belongs to is the line's `object`."""
    return {"child": f"{child.resource.kind} {child.name}"}
