"""One service at a time: store → desire → writes → readings → status → events. `applier` does the writes.

Level-triggered: it never asks what happened, only what is, and whatever it reads may be stale.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from graphpod_operator.api.names import API_VERSION, KIND
from graphpod_operator.api.status import ConditionStatus, Status
from graphpod_operator.apply import drift_backoff
from graphpod_operator.apply.applier import Applier
from graphpod_operator.apply.refused_bodies import RefusedBodies
from graphpod_operator.apply.revision_collector import RevisionCollector
from graphpod_operator.apply.revision_recovery import RevisionRecovery
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Store
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.controller.ignored_replicas import IgnoredReplicas
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.installation import PERMISSIVE, Installation
from graphpod_operator.install.network_access import Access
from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.field_ownership import fingerprint
from graphpod_operator.kube.port import ApiError, Cluster, Conflict, NotLeading, ServerRefused, Terminating
from graphpod_operator.kube.resources import OPTIONAL, Resource
from graphpod_operator.observe.diagnosis import prepares_until
from graphpod_operator.observe.observer import Observer
from graphpod_operator.observe.reading import NoReading, Reading
from graphpod_operator.observe.warmups import Warmups, answers, read_again
from graphpod_operator.plan import replica_handover
from graphpod_operator.plan.capture_failures import Step
from graphpod_operator.plan.changes import Create, Delete, Look, Update, Write, not_applied
from graphpod_operator.plan.desired import Desired, DesiredChild, Refused
from graphpod_operator.plan.planner import desire
from graphpod_operator.plan.refused_field import blamed
from graphpod_operator.status import events
from graphpod_operator.status.event_recorder import EventRecorder
from graphpod_operator.status.status import status
from graphpod_operator.status.write_throttle import WriteThrottle
from graphpod_operator.telemetry.metrics import Meters
from graphpod_operator.watch.feed import owned_by
from graphpod_operator.watch.optional_kinds import Gone, OptionalKinds

log = logging.getLogger("graphpod_operator.reconcile")

BLOCKED_SECONDS: dict[Reason, float] = {Reason.NameCollision: 60.0, Reason.PreviousDeleting: 5.0}
"""Objects that are not ours are not watched, so they are looked at again after this time."""


class HeldUp(ApiError):
    """An object could not be written. All else is done; `pause` is when to look at it again, in seconds, or None."""

    def __init__(self, error: ApiError, pause: float | None) -> None:
        super().__init__(error.status, str(error))
        self.pause = pause


class Reconciler:
    """Carries out the plan of one service at a time; different services may be in work together."""

    def __init__(
        self,
        cluster: Cluster,
        warmups: Warmups,
        store: Store,
        meters: Meters,
        clock: Clock,
        images: Images,
        kinds: OptionalKinds,
        prometheus: str = "",
        access: Access | None = None,
        installed: Installation = PERMISSIVE,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._image = images
        self._kinds = kinds
        self._prometheus = prometheus
        self._access = access
        self._installed = installed
        self._events = EventRecorder(cluster, clock)
        self._progress = WriteThrottle()
        self._backoff = drift_backoff.DriftBackoff()
        self._said: dict[Key, tuple[str, str]] = {}
        """Of the status written last: the fingerprints of what was said, and of what the server then had."""
        self._waits: dict[Key, float] = {}
        """Seconds until what somebody changes again and again is put back."""
        self._observer = Observer(warmups, store, meters)
        self._made: dict[Key, tuple[str, frozenset[tuple[Resource, str]]]] = {}
        """The children that a service (by uid) had when all of them were in order."""
        self._ending: dict[Key, str] = {}
        """Services (by uid) whose namespace is being deleted; none of them comes back."""
        self._recovery = RevisionRecovery(cluster)
        self._refused = RefusedBodies()
        self._scaled = IgnoredReplicas()
        self._applier = Applier(cluster, store, meters, kinds)
        self._collector = RevisionCollector(cluster, store, clock, self._applier)

    def reread(self, keys: Iterable[Key]) -> None:
        """Ask the pods of these services again at their next reconcile, also those whose warm-up has ended."""
        self._observer.reread(keys)

    def _forget(self, key: Key) -> None:
        """The service is gone: nothing is kept of it."""
        for memory in (self._said, self._waits, self._made, self._ending):
            memory.pop(key, None)
        self._observer.forget(key)
        self._collector.forget(key)
        self._progress.forget(key)
        self._recovery.forget(key)
        self._applier.forget(key)
        self._refused.forget(key)
        self._scaled.forget(key)

    async def reconcile(self, key: Key) -> float | None:
        """Bring one service in order. Returns the seconds after which it is to be looked at again, or None; that is 0
        when its user changed it meanwhile.

        Raises the port's errors; whatever was done until then is not lost, and the next call goes on from there.
        """
        found = self._store.service(key)
        if found is None or found.deleting:
            self._forget(key)
            return None
        if self._ending.get(key) == found.uid:
            return None
        memories = self._store.children(key, Resource.ControllerRevision)
        deployment = self._store.child(Resource.Deployment, key.namespace, key.name)
        outcome = self._desire(found, memories, deployment, self._store.pods(key))
        if (ignored := self._scaled.ignored(found)) is not None:
            await self._events.tell(found, events.warning(Reason.ReplicasIgnored, ignored))
        for trouble in self._recovery.none(found, memories):
            await self._events.tell(found, events.warning(Reason.MemoryUnreadable, trouble))
        if skipped := self._store.skipped(key):
            rest = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
            await self._events.tell(found, events.warning(Reason.ObjectSkipped, f"{skipped[0]}{rest}"))
        if (lost := await self._recovery.lost(found, memories, deployment, outcome)) is not None:
            memories = (*memories, lost)
            outcome = self._desire(found, memories, deployment, self._store.pods(key))
        stopped: Refused | None = None
        failure: ApiError | None = None
        held_up: dict[Resource, ApiError] = {}
        again: float | None = None
        if isinstance(outcome, Desired) and not found.paused:
            try:
                if outcome.steps_down:
                    outcome = await self._desire_live(found, memories)
                done = await self._apply(found, outcome, held_up) if isinstance(outcome, Desired) else []
                if isinstance(done, Refused):
                    stopped = done
                elif isinstance(outcome, Desired):
                    if outcome.steps_down and outcome.capture_failures is not None and any(map(_rolls_out, done)):
                        await self._tell_step(found, outcome.capture_failures.steps[-1])
                    self._refused.forget(key)
                    again = await self._collector.prune(found, outcome)
            except Terminating:
                # the service goes with its namespace, and nobody reads a status that says so
                self._ending[key] = found.uid
                return None
            except ServerRefused as error:
                stopped = not_applied(str(error))
                if stopped.reason.row.stalled:
                    again = self._refused.again(key, self._clock.monotonic())
                else:
                    failure = error
        seen = await self._observer.observe(key, held_up)
        # a pod that served before this operator began is heard first, lest a restart make its service look unproved
        unheard = any(_is_unheard(found, pod, seen.readings.get(pod.uid)) for pod in seen.pods)
        told = status(found, outcome, stopped, seen, self._clock.timestamp())
        held_back = None if unheard else await self._report(found, told)
        if failure is not None:
            raise HeldUp(failure, held_back) from failure  # by any other pause it would be tried at each look
        blocked = BLOCKED_SECONDS.get(stopped.reason) if stopped is not None else None
        prepared = prepares_until(seen.pods, self._clock.timestamp())
        pauses = (held_back, blocked, again, prepared, self._waits.pop(key, None), read_again(seen.readings.values()))
        pause = min((pause for pause in pauses if pause is not None), default=None)
        if held_up:
            raise HeldUp(next(iter(held_up.values())), pause)
        return pause

    def _desire(
        self, found: Service, memories: tuple[Child, ...], deployment: Child | None, pods: tuple[Pod, ...]
    ) -> Desired | Refused:
        failed_start = any(pod.failed_start for pod in pods)
        ours = deployment is not None and is_ours(found, deployment)
        remembered = deployment.capture_failures if deployment is not None and ours else None
        absent, access = self._kinds.absent, self._access
        return desire(
            found,
            self._image,
            memories,
            failed_start,
            absent,
            pods,
            remembered,
            self._prometheus,
            access,
            self._installed,
        )

    async def _desire_live(self, found: Service, memories: tuple[Child, ...]) -> Desired | Refused:
        """The same by fresh lists: a weaker plan restarts every pod, so it is not decided by what a watch told last."""
        pods = await self._cluster.list(Resource.Pod, found.key.namespace, owned_by(found.key.name), Pod.of)
        raw = await self._cluster.get(Resource.Deployment, found.key.namespace, found.key.name)
        deployment = Child.of(Resource.Deployment, raw) if raw is not None else None
        return self._desire(found, memories, deployment, tuple(pod for pod in pods.items if pod.key == found.key))

    async def _tell_step(self, found: Service, step: Step) -> None:
        """Each step is told once: it is taken once."""
        log.warning("a weaker plan runs", extra={"why": step.because})
        await self._events.send(found, events.warning(Reason.StartsDied, f"a weaker plan runs: {step.because}"))

    async def _apply(
        self, found: Service, desired: Desired, held_up: dict[Resource, ApiError]
    ) -> list[Write] | Refused:
        """Carry out the writes, and say which; or why none of them may be. `held_up` gets what went wrong with objects
        of optional kinds, which hold up no other.
        """
        done: list[Write] = []
        while True:
            needed = replica_handover.writes(found, desired, self._applier.look)
            if not isinstance(needed, Refused) and any(replica_handover.passes(desired, write) for write in needed):
                workload = next(one for one in desired.children if one.resource is Resource.Deployment)
                live = await self._applier.look_again(workload)
                needed = replica_handover.writes(found, desired, self._knowing(workload, live))
            now = needed if isinstance(needed, Refused) else await self._write(found, desired, needed, held_up)
            if isinstance(now, Refused):
                return now
            done += now
            if not (replica_handover.goes_on(desired, now) or any(map(_makes_way, now))):
                return done

    def _knowing(self, wanted: DesiredChild, live: Child | None) -> Look:
        """A look that knows what one child is: to the store, one that lost our label is none."""
        return lambda *place: (
            live if place == (wanted.resource, wanted.namespace, wanted.name) else self._applier.look(*place)
        )

    async def _write(
        self, found: Service, desired: Desired, needed: Iterable[Write], held_up: dict[Resource, ApiError]
    ) -> list[Write] | Refused:
        """Carry out these writes, but for those that give way, and say which; or why none of them may be."""
        # all looks before the first write: a collision must leave the namespace as it was
        checked: list[Write] = []
        for write in needed:
            with _apart(write, held_up):
                if isinstance(confirmed := await self._applier.confirm(found, write), Refused):
                    return confirmed
                if confirmed is not None:
                    checked.append(confirmed)
        uid, before = self._made.get(found.key, (found.uid, frozenset()))
        made = [(write.wanted.resource, write.wanted.name) for write in checked if isinstance(write, Create)]
        anew = uid == found.uid and not before.isdisjoint(made)
        if anew or any(isinstance(write, Update) and _rolls_out(write) for write in checked):
            await self._applier.expect(found)
        done: list[Write] = []
        for write in checked:
            drift = False
            if isinstance(write, Create | Update):
                wanted = write.wanted
                known = uid == found.uid and (wanted.resource, wanted.name) in before
                drift = write.edited if isinstance(write, Update) else known
                if drift and await self._gives_way(found, (wanted.resource, found.uid, wanted.name), str(wanted)):
                    continue
            with _apart(write, held_up):
                await self._carry_out(found, write, drift)
                done.append(write)
            if drift and isinstance(write, Update) and _rolls_out(write):
                what = "the Deployment was changed and is put back"
                await self._events.tell(found, events.warning(Reason.PutBack, what))
        there = (wanted for wanted in desired.children if wanted.resource not in held_up)
        self._made[found.key] = found.uid, frozenset((wanted.resource, wanted.name) for wanted in there)
        return done

    async def _carry_out(self, found: Service, write: Write, drift: bool) -> None:
        """Carry out one write, unless the server refused the same for a fault of the spec a short while ago."""
        if not isinstance(write, Create | Update):
            return await self._applier.carry_out(write, drift)
        self._refused.check(found.key, write.wanted, self._clock.monotonic())
        try:
            await self._applier.carry_out(write, drift)
        except ServerRefused as error:
            if blamed(str(error)) is not None:
                self._refused.note(found.key, write.wanted, error, self._clock.monotonic())
            raise

    async def _gives_way(
        self, found: Service, what: Hashable, words: str, longest: float = drift_backoff.LONGEST_PAUSE
    ) -> bool:
        """Whether something that somebody changed stays so for a while: it was put back again and again."""
        now = self._clock.monotonic()
        if (wait := self._backoff.wait(what, now, longest)) > 0:
            self._waits[found.key] = min(wait, self._waits.get(found.key, wait))
            return True
        if self._backoff.put_back(what, now):
            await self._events.tell(found, events.warning(Reason.Contested, f"{words} is changed again and again"))
        return False

    async def _report(self, found: Service, new: Status) -> float | None:
        """Write the status if it says something new, then tell the transitions.

        Returns the seconds after which to look again: a detail was held back, or somebody changed the service since.
        """
        content = new.model_dump(mode="json", by_alias=True, exclude_none=True)
        wait = self._progress.wait(found.key, found.status, content, self._clock.monotonic())
        if wait is None or wait > 0:
            return wait
        said, there = fingerprint(content), fingerprint(found.status)
        before = self._said.get(found.key)
        if before == (said, there):
            return None  # what differs is a field that somebody else holds: saying it again would not take it away
        if (
            before is not None
            and before[1] != there
            and await self._gives_way(found, found.uid, "the status", _status_pause(found.status, content))
        ):
            return None
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": found.key.name, "namespace": found.key.namespace, "uid": found.uid},
            "status": content,
        }
        try:
            raw = await self._cluster.apply_status(body)
        except ServerRefused as error:
            if error.status == 404:
                return None  # deleted meanwhile; the watch will say so
            raise
        self._progress.written(found.key, self._clock.monotonic())
        self._said[found.key] = said, fingerprint(raw.get("status") or {})
        self._applier.believe(found, written := Service.of(raw))
        self._store.observe(written)
        for event in events.transitions(found.status, new):
            await self._events.tell(found, event)
        # the answer has whatever somebody changed meanwhile; the watch tells of it later, as of something known already
        return None if written.asks_as(found) else 0.0


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
        if not isinstance(write, Create | Update) or write.wanted.resource not in OPTIONAL:
            raise
        held_up[write.wanted.resource] = error


def _status_pause(there: Mapping[str, Any], true: Mapping[str, Any]) -> float:
    """How long somebody else's status may stand at most."""
    said, serves = (
        {row["type"] for row in status.get("conditions") or () if row["status"] == ConditionStatus.true}
        for status in (there, true)
    )
    lies = (said - serves).intersection((ConditionType.Ready, ConditionType.Available))
    return drift_backoff.LIE_PAUSE if lies else drift_backoff.STATUS_PAUSE


def _makes_way(write: Write) -> bool:
    """Whether what this deleted, a memory that cannot be read, is to be made anew."""
    return isinstance(write, Delete) and write.child.kept is not None


def _rolls_out(write: Write) -> bool:
    """Whether this writes the Deployment."""
    return isinstance(write, Create | Update) and write.wanted.resource is Resource.Deployment


def _is_unheard(found: Service, pod: Pod, answer: Reading | NoReading | None) -> bool:
    """Whether a ready pod may still prove itself: it was not asked yet, or, where the service is said to serve, it did
    not answer the first times.
    """
    if not (pod.ready and answers(pod)):
        return False
    serves = any(
        condition["type"] == ConditionType.Available and condition["status"] == ConditionStatus.true
        for condition in found.status.get("conditions") or ()
    )
    return answer is None or (serves and isinstance(answer, NoReading) and answer.is_borne)
