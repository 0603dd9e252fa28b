"""One service at a time: store → desire → writes → readings → status → events. `executor` does the writes.

Level-triggered: it never asks what happened, only what is, and whatever it reads may be stale.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

from graphpod_operator import contest, events, handover, prune
from graphpod_operator.access import Access
from graphpod_operator.api import API_VERSION, KIND
from graphpod_operator.api_status import ConditionStatus, Status
from graphpod_operator.blame import blamed
from graphpod_operator.clock import Clock
from graphpod_operator.conditions import ConditionType
from graphpod_operator.degrade import Step
from graphpod_operator.diagnose import prepares_until
from graphpod_operator.executor import Executor
from graphpod_operator.feed import owned_by
from graphpod_operator.installation import PERMISSIVE, Installation
from graphpod_operator.kinds import Gone, Kinds
from graphpod_operator.metrics import Meters
from graphpod_operator.observe import Child, Key, Pod, Service, is_ours
from graphpod_operator.observed import Observed
from graphpod_operator.ownership import fingerprint
from graphpod_operator.plan import Desired, Refused, Wanted, desire
from graphpod_operator.port import ApiError, Cluster, Conflict, NotLeading, Raw, T, Terminating
from graphpod_operator.port import Refused as ServerRefused
from graphpod_operator.progress import Progress
from graphpod_operator.reasons import Reason
from graphpod_operator.recollect import Recollection
from graphpod_operator.refused_bodies import RefusedBodies
from graphpod_operator.render.images import Images
from graphpod_operator.resource import AUTOSCALERS, OPTIONAL, Resource
from graphpod_operator.scaled import Scaled
from graphpod_operator.status import status
from graphpod_operator.store import Store
from graphpod_operator.warmup import NoReading, Reading, Warmups, answers, read_again
from graphpod_operator.writes import Create, Look, Remove, Repair, Write, not_applied

log = logging.getLogger(__name__)

PRUNE_SECONDS = 10.0
"""Until old ReplicaSets are looked at again: they are not watched, and go some time after the rollout."""
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
        kinds: Kinds,
        prometheus: str = "",
        access: Access | None = None,
        installed: Installation = PERMISSIVE,
    ) -> None:
        self._cluster = cluster
        self._warmups = warmups
        self._store = store
        self._meters = meters
        self._clock = clock
        self._image = images
        self._kinds = kinds
        self._prometheus = prometheus
        self._access = access
        self._installed = installed
        self._recent = events.Recent()
        self._progress = Progress()
        self._contests = contest.Contests()
        self._said: dict[Key, tuple[str, str]] = {}
        """Of the status written last: the fingerprints of what was said, and of what the server then had."""
        self._waits: dict[Key, float] = {}
        """Seconds until what somebody changes again and again is put back."""
        self._reread: set[Key] = set()
        self._pruned: dict[Key, float] = {}
        """When the old ones of a service were looked at last."""
        self._made: dict[Key, tuple[str, frozenset[tuple[Resource, str]]]] = {}
        """The children that a service (by uid) had when all of them were in order."""
        self._ending: dict[Key, str] = {}
        """Services (by uid) whose namespace is being deleted; none of them comes back."""
        self._recollection = Recollection(cluster)
        self._refused = RefusedBodies()
        self._scaled = Scaled()
        self._executor = Executor(cluster, store, meters, kinds)

    def reread(self, keys: Iterable[Key]) -> None:
        """Ask the pods of these services again at their next reconcile, also those whose warm-up has ended."""
        self._reread.update(keys)

    def _forget(self, key: Key) -> None:
        """The service is gone: nothing is kept of it."""
        for memory in (self._said, self._waits, self._pruned, self._made, self._ending):
            memory.pop(key, None)
        self._reread.discard(key)
        self._progress.forget(key)
        self._recollection.forget(key)
        self._executor.forget(key)
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
            await self._tell(found, events.warning(Reason.ReplicasIgnored, ignored))
        for trouble in self._recollection.none(found, memories):
            await self._tell(found, events.warning(Reason.MemoryUnreadable, trouble))
        if skipped := self._store.skipped(key):
            rest = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
            await self._tell(found, events.warning(Reason.ObjectSkipped, f"{skipped[0]}{rest}"))
        if (lost := await self._recollection.lost(found, memories, deployment, outcome)) is not None:
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
                    if outcome.steps_down and outcome.deaths is not None and any(map(_rolls_out, done)):
                        await self._tell_step(found, outcome.deaths.steps[-1])
                    self._refused.forget(key)
                    again = await self._prune(found, outcome)
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
        seen = await self._observe(key, held_up)
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
        remembered = deployment.deaths if deployment is not None and ours else None
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
        await self._send(found, events.warning(Reason.StartsDied, f"a weaker plan runs: {step.because}"))

    async def _apply(
        self, found: Service, desired: Desired, held_up: dict[Resource, ApiError]
    ) -> list[Write] | Refused:
        """Carry out the writes, and say which; or why none of them may be. `held_up` gets what went wrong with objects
        of optional kinds, which hold up no other.
        """
        done: list[Write] = []
        while True:
            needed = handover.writes(found, desired, self._executor.look)
            if not isinstance(needed, Refused) and any(handover.passes(desired, write) for write in needed):
                workload = next(one for one in desired.children if one.resource is Resource.Deployment)
                live = await self._executor.look_again(workload)
                needed = handover.writes(found, desired, self._knowing(workload, live))
            now = needed if isinstance(needed, Refused) else await self._write(found, desired, needed, held_up)
            if isinstance(now, Refused):
                return now
            done += now
            if not (handover.goes_on(desired, now) or any(map(_makes_way, now))):
                return done

    def _knowing(self, wanted: Wanted, live: Child | None) -> Look:
        """A look that knows what one child is: to the store, one that lost our label is none."""
        return lambda *place: (
            live if place == (wanted.resource, wanted.namespace, wanted.name) else self._executor.look(*place)
        )

    async def _write(
        self, found: Service, desired: Desired, needed: Iterable[Write], held_up: dict[Resource, ApiError]
    ) -> list[Write] | Refused:
        """Carry out these writes, but for those that give way, and say which; or why none of them may be."""
        # all looks before the first write: a collision must leave the namespace as it was
        checked: list[Write] = []
        for write in needed:
            with _apart(write, held_up):
                if isinstance(confirmed := await self._executor.confirm(found, write), Refused):
                    return confirmed
                if confirmed is not None:
                    checked.append(confirmed)
        uid, before = self._made.get(found.key, (found.uid, frozenset()))
        made = [(write.wanted.resource, write.wanted.name) for write in checked if isinstance(write, Create)]
        anew = uid == found.uid and not before.isdisjoint(made)
        if anew or any(isinstance(write, Repair) and _rolls_out(write) for write in checked):
            await self._executor.expect(found)
        done: list[Write] = []
        for write in checked:
            drift = False
            if isinstance(write, Create | Repair):
                wanted = write.wanted
                known = uid == found.uid and (wanted.resource, wanted.name) in before
                drift = write.edited if isinstance(write, Repair) else known
                if drift and await self._gives_way(found, (wanted.resource, found.uid, wanted.name), str(wanted)):
                    continue
            with _apart(write, held_up):
                await self._carry_out(found, write, drift)
                done.append(write)
            if drift and isinstance(write, Repair) and _rolls_out(write):
                what = "the Deployment was changed and is put back"
                await self._tell(found, events.warning(Reason.PutBack, what))
        there = (wanted for wanted in desired.children if wanted.resource not in held_up)
        self._made[found.key] = found.uid, frozenset((wanted.resource, wanted.name) for wanted in there)
        return done

    async def _carry_out(self, found: Service, write: Write, drift: bool) -> None:
        """Carry out one write, unless the server refused the same for a fault of the spec a short while ago."""
        if not isinstance(write, Create | Repair):
            return await self._executor.carry_out(write, drift)
        self._refused.check(found.key, write.wanted, self._clock.monotonic())
        try:
            await self._executor.carry_out(write, drift)
        except ServerRefused as error:
            if blamed(str(error)) is not None:
                self._refused.note(found.key, write.wanted, error, self._clock.monotonic())
            raise

    async def _gives_way(
        self, found: Service, what: Hashable, words: str, longest: float = contest.LONGEST_PAUSE
    ) -> bool:
        """Whether something that somebody changed stays so for a while: it was put back again and again."""
        now = self._clock.monotonic()
        if (wait := self._contests.wait(what, now, longest)) > 0:
            self._waits[found.key] = min(wait, self._waits.get(found.key, wait))
            return True
        if self._contests.put_back(what, now):
            await self._tell(found, events.warning(Reason.Contested, f"{words} is changed again and again"))
        return False

    async def _prune(self, found: Service, desired: Desired) -> float | None:
        """Delete old memories and configurations that nothing names. Seconds until the next look, if one is needed."""
        known = [child for kind in prune.PRUNED for child in self._store.children(found.key, kind)]
        if not prune.overgrown(found, desired, known):
            self._pruned.pop(found.key, None)
            return None
        now = self._clock.monotonic()
        if (wait := self._pruned.get(found.key, float("-inf")) + PRUNE_SECONDS - now) > 0:
            return wait
        self._pruned[found.key] = now

        async def fresh(resource: Resource, keep: Callable[[Raw], T]) -> tuple[T, ...]:
            return (await self._cluster.list(resource, found.key.namespace, owned_by(found.key.name), keep)).items

        named = [await fresh(resource, prune.named_by) for resource in (Resource.ReplicaSet, Resource.Pod)]
        if any(None in names for names in named):
            return PRUNE_SECONDS  # what was not read may name any
        maps, revisions = [await fresh(resource, partial(Child.of, resource)) for resource in prune.PRUNED]
        lists = prune.Lists(maps, revisions, frozenset(filter(None, chain(*named))))
        doomed = prune.superfluous(found, desired, lists)
        for child in doomed:
            await self._executor.delete(child, "no longer named")
        left = {*lists.config_maps, *lists.revisions}.difference(doomed)
        return PRUNE_SECONDS if prune.overgrown(found, desired, left) else None

    async def _observe(self, key: Key, held_up: Mapping[Resource, ApiError]) -> Observed:
        again = key in self._reread
        self._reread.discard(key)
        readings = await self._warmups.read(self._store.pods(key), again=again)
        for answer in readings.values():
            result = answer.cause.value if isinstance(answer, NoReading) else "ok"
            self._meters.count("graphpod_operator_warmup_reads_total", result=result)
        # the pods may have changed during the reads: report on what is now
        where = key.namespace, key.name
        deployment = self._store.child(Resource.Deployment, *where)
        service = self._store.service(key)
        owner = deployment.controller if deployment is not None else None
        ours = owner is not None and service is not None and owner.uid == service.uid

        def ours_of(kind: Resource) -> Child | None:
            child = self._store.child(kind, *where)
            return child if child is not None and service is not None and is_ours(service, child) else None

        route = ours_of(Resource.HTTPRoute)
        return Observed(
            rollout=deployment.rollout if deployment is not None and ours else None,
            pods=self._store.pods(key) if ours else (),
            readings=readings,
            optional=frozenset(kind for kind in OPTIONAL if ours_of(kind)),
            autoscaler=next(filter(None, map(ours_of, AUTOSCALERS)), None),
            route=route.route if route is not None else None,
            held_up={kind: str(error) for kind, error in held_up.items()},
        )

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
        self._executor.believe(found, written := Service.of(raw))
        self._store.observe(written)
        for event in events.transitions(found.status, new):
            await self._tell(found, event)
        # the answer has whatever somebody changed meanwhile; the watch tells of it later, as of something known already
        return None if written.asks_as(found) else 0.0

    async def _tell(self, found: Service, event: events.Event) -> None:
        if self._recent.is_new(found, event, self._clock.monotonic()):
            await self._send(found, event)

    async def _send(self, found: Service, event: events.Event) -> None:
        body: dict[str, Any] = events.body(found, event, self._clock.timestamp())
        try:
            await self._cluster.event(body)
        except Terminating:
            return
        except ApiError as error:
            # an event is a courtesy: the status, already written, says the same
            log.warning("event not written", extra={"reason": event.reason, "error": error})


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
        if not isinstance(write, Create | Repair) or write.wanted.resource not in OPTIONAL:
            raise
        held_up[write.wanted.resource] = error


def _status_pause(there: Mapping[str, Any], true: Mapping[str, Any]) -> float:
    """How long somebody else's status may stand at most."""
    said, serves = (
        {row["type"] for row in status.get("conditions") or () if row["status"] == ConditionStatus.true}
        for status in (there, true)
    )
    lies = (said - serves).intersection((ConditionType.Ready, ConditionType.Available))
    return contest.LIE_PAUSE if lies else contest.STATUS_PAUSE


def _makes_way(write: Write) -> bool:
    """Whether what this deleted, a memory that cannot be read, is to be made anew."""
    return isinstance(write, Remove) and write.child.kept is not None


def _rolls_out(write: Write) -> bool:
    """Whether this writes the Deployment."""
    return isinstance(write, Create | Repair) and write.wanted.resource is Resource.Deployment


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
