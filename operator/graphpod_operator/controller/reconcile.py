"""One service at a time: store → desire → apply → observe → status → events.

Level-triggered: it never asks what happened, only what is, and whatever it reads may be stale.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from graphpod_operator.api.names import PAUSED_ANNOTATION
from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.apply.applier import Applied, Applier
from graphpod_operator.apply.claims import Claims
from graphpod_operator.apply.download_writer import DownloadWriter
from graphpod_operator.apply.drift_backoff import PutBacks
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.service_memory import ServiceMemories, ServiceMemory
from graphpod_operator.cache.store import Store
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.controller.weights_sender import WeightsSender
from graphpod_operator.events.recorder import EventRecorder
from graphpod_operator.install.installation import Installation
from graphpod_operator.intent.asked_downloads import downloads
from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.cluster import ApiError, Cluster, ServerRefused, Terminating
from graphpod_operator.kube.resources import Resource, workload_kind, workload_name
from graphpod_operator.observe.download_progress import POLL_SECONDS, DownloadProgress
from graphpod_operator.observe.ladder_advisor import LadderAdvisor
from graphpod_operator.observe.observed_state import Observer
from graphpod_operator.observe.pod_diagnosis import prepares_until
from graphpod_operator.observe.warmup_poller import Warmups, answers, read_again
from graphpod_operator.observe.warmup_report import NoReading, Reading
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.downloads import WeightsSeen
from graphpod_operator.plan.folders_in_use import claim_users, folders_in_use
from graphpod_operator.plan.named_secrets import named_secrets
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.plan.writes import not_applied
from graphpod_operator.revisions import recovery
from graphpod_operator.revisions.accepted_plan import accepted_plan
from graphpod_operator.revisions.garbage_collection import GarbageCollector
from graphpod_operator.status.status import status
from graphpod_operator.status.writer import StatusWriter
from graphpod_operator.telemetry import service_progress
from graphpod_operator.telemetry.metrics import Meters
from graphpod_operator.watch.informer import owned_by
from graphpod_operator.watch.optional_kinds import OptionalKinds

log = logging.getLogger(__name__)

BLOCKED_SECONDS: dict[Reason, float] = {
    Reason.NameCollision: 60.0,
    Reason.OwnerMissing: 60.0,
    Reason.PreviousDeleting: 5.0,
}
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
        kinds: OptionalKinds,
        installed: Installation,
        advisor: LadderAdvisor,
        downloads: DownloadProgress,
        weights: WeightsSender,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._kinds = kinds
        self._installed = installed
        self._memories = ServiceMemories()
        self._events = EventRecorder(cluster, clock)
        put_backs = PutBacks(clock, self._events)
        self._applier = Applier(cluster, store, meters, clock, kinds, self._events, put_backs)
        self._collector = GarbageCollector(cluster, store, clock, self._applier)
        self._observer = Observer(warmups, store, meters, advisor, downloads)
        self._weights_sender = weights
        self._claims = Claims(cluster, clock)
        self._downloads = DownloadWriter(cluster, store, self._claims, installed.access)
        self._writer = StatusWriter(cluster, store, clock, self._events, put_backs, meters)

    def reread(self, keys: Iterable[Key]) -> None:
        """Ask the pods of these services again at their next reconcile, also those whose warm-up has ended."""
        for found in filter(None, map(self._store.service, keys)):
            self._memories.of(found).reread = True

    async def reconcile(self, key: Key) -> float | None:
        """Bring one service in order. Returns the seconds after which it is to be looked at again, or None; that is 0
        when its user changed it meanwhile.

        Raises the port's errors; whatever was done until then is not lost, and the next call goes on from there.
        """
        found = self._store.service(key)
        if found is None or found.deleting:
            self._memories.forget(key)
            await self._tidy(key.namespace)
            return None
        memory = self._memories.of(found)
        if memory.is_ending:
            return None
        service_progress.began(found, memory, self._clock.monotonic())
        given = replace(self._input(found), weights=await self._weights(found))
        outcome = desire(given)
        await self._tell_troubles(given, memory)
        if (lost := await recovery.lost(given, outcome, memory, self._cluster)) is not None:
            given = replace(given, revisions=(*given.revisions, lost))
            outcome = desire(given)
        stopped: Refused | None = None
        failure: ApiError | None = None
        again: float | None = None
        done = Applied()
        if isinstance(outcome, Desired) and not found.paused:
            try:
                if outcome.steps_down:
                    outcome = desire(await self._live(given))
                if isinstance(outcome, Desired) and outcome.children:
                    stopped = await self._applier.apply(found, outcome, memory, done)
                    if stopped is None:
                        if outcome.misses_key:
                            await self._applier.make_key(outcome)
                        await self._tell_step(found, outcome, done)
                        again = await self._collector.prune(found, outcome, memory)
                if isinstance(outcome, Desired) and outcome.weights is not None and stopped is None:
                    written = await self._downloads.carry_out(found, outcome.weights)
                    stopped = written if isinstance(written, Refused) else None
                    again = 0.0 if written is True else again
            except Terminating:
                # the service goes with its namespace, so a status that says so has no reader
                memory.is_ending = True
                return None
            except ServerRefused as error:
                stopped = not_applied(str(error))
                if not stopped.reason.row.stalled:
                    failure = error
                elif memory.refused is not None:
                    again = max(0.0, memory.refused.until - self._clock.monotonic())
        reread, memory.reread = memory.reread, False
        accepted = accepted_plan(given, outcome, stopped)
        config_hash = accepted.config_hash if accepted is not None else None
        weights = outcome.weights if isinstance(outcome, Desired) else None
        fetching = [one.pod for one in weights.downloads if one.pod is not None] if weights is not None else []
        seen = await self._observer.observe(key, done.held_up, reread, config_hash, fetching)
        # a pod that served before this operator began is heard first, lest a restart make its service look unproved
        unheard = any(_is_unheard(found, pod, seen.readings.get(pod.uid)) for pod in seen.pods)
        now = self._clock.timestamp()
        clock = self._clock.monotonic()
        seen = replace(seen, leaving=memory.leaving.look(seen.pods, clock, now))
        prepared, polled = prepares_until(seen.pods, now), read_again(seen.readings.values())
        ordering: float | None = None
        if isinstance(outcome, Desired) and stopped is None:
            seen, ordering = await self._weights_sender.carry_out(found, outcome, seen, memory)
        reported = status(found, outcome, stopped, seen, now, accepted)
        held_back = None if unheard else await self._writer.write(found, reported, memory)
        if failure is not None:
            raise HeldUp(failure, held_back) from failure  # by any other pause it would be tried at each look
        blocked = BLOCKED_SECONDS.get(stopped.reason) if stopped is not None else None
        downloading = POLL_SECONDS if weights is not None and weights.missing is not None else None
        leaving = memory.leaving.pause(clock, now)
        pauses = (
            held_back,
            blocked,
            again,
            done.again,
            prepared,
            polled,
            downloading,
            seen.look_again,
            ordering,
            leaving,
        )
        pause = min((pause for pause in pauses if pause is not None), default=None)
        await self._tidy(key.namespace)
        if done.held_up:
            raise HeldUp(next(iter(done.held_up.values())), pause)
        return pause

    def _input(self, found: Service) -> PlanInput:
        """What a service is planned from, by the watch cache."""
        return PlanInput(
            found,
            self._installed,
            revisions=self._store.children(found.key, Resource.ControllerRevision),
            workloads=self._store.workloads(found.key),
            pods=self._store.pods(found.key),
            absent=self._kinds.absent,
        )

    async def _weights(self, found: Service) -> WeightsSeen | None:
        """What there is of a service's downloads; None where it has none."""
        asked = downloads(found.key.name, found.spec) if found.downloads else ()
        if not asked:
            return None
        namespace, jobs = found.key.namespace, self._store.jobs(found.key.namespace)
        claims = {one.claim: await self._claims.read(namespace, one.claim) for one in asked}
        begins = {one.job for one in asked} - {job.name for job in jobs if job.active}
        return WeightsSeen(
            claims=claims,
            jobs=jobs,
            pods={job.uid: self._store.job_pods(job) for job in jobs},
            in_use=folders_in_use(self._store, namespace, asked[0].claim) if begins else frozenset(),
            users=claim_users(self._store, namespace, asked[0].claim),
            secrets=named_secrets(self._store, namespace) if jobs else {},
            now=self._clock.timestamp(),
        )

    async def _tidy(self, namespace: str) -> None:
        """Delete the Jobs of a namespace that no service uses any more."""
        if self._store.jobs(namespace):
            await self._downloads.tidy(namespace)

    async def _live(self, given: PlanInput) -> PlanInput:
        """The same by fresh lists: a weaker plan restarts every pod, so the watch cache may not decide it."""
        key = given.found.key
        pods = await self._cluster.list(Resource.Pod, key.namespace, owned_by(key.name), Pod.of)
        kind = workload_kind(given.found.nodes)
        raw = await self._cluster.get(kind, key.namespace, workload_name(kind, key.name))
        live = [Child.of(kind, raw)] if raw is not None else []
        live += [child for child in given.workloads if child.resource is not kind]
        return replace(given, workloads=live, pods=tuple(pod for pod in pods.items if pod.key == key))

    async def _tell_troubles(self, given: PlanInput, memory: ServiceMemory) -> None:
        """What no condition reports: an edit without effect, and objects that cannot be read."""
        found = given.found
        if (ignored := ignored_replicas(found, memory)) is not None:
            await self._events.warn(found, Reason.ReplicasIgnored, ignored)
        if found.mispaused is not None:
            what = f"{PAUSED_ANNOTATION} is {found.mispaused[:40]!r}, so the service is not paused"
            await self._events.warn(found, Reason.AnnotationIgnored, what)
        for trouble in recovery.unreadable(found, given.revisions, memory):
            await self._events.warn(found, Reason.MemoryUnreadable, trouble)
        if skipped := self._store.skipped(found.key):
            rest = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
            await self._events.warn(found, Reason.ObjectSkipped, f"{skipped[0]}{rest}")

    async def _tell_step(self, found: Service, desired: Desired, done: Applied) -> None:
        """A step to a weaker plan is reported once: it is taken once."""
        if desired.steps_down and desired.capture_failures is not None and done.rolls_out:
            because = desired.capture_failures.steps[-1].because
            log.warning("a weaker plan runs", extra={"why": because})
            await self._events.warn(found, Reason.StartsDied, f"a weaker plan runs: {because}", once=True)


def ignored_replicas(found: Service, memory: ServiceMemory) -> str | None:
    """That somebody scales a service by hand while its autoscaler decides, once after each change: `kubectl scale`
    succeeds, and nothing comes of it.
    """
    before, memory.replicas = memory.replicas, (asked := found.spec.get("replicas"),)
    if before is None or before == memory.replicas or not found.spec.get("autoscaling"):
        return None
    return f"spec.replicas {asked} is ignored while spec.autoscaling decides"


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
