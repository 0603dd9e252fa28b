"""The running operator: parts put together, and the tasks that keep them going.

Order of start: lists fill the store and queue every service, then the watches begin and the Lease is contended for, and
with it workers start. Nothing is decided before the lists are done, because an object not heard of yet would pass for
one that is absent. An operator that waits for the Lease keeps its store as warm as the one that leads, and lists once
more before its first write: a watch that froze meanwhile missed changes silently.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import aiohttp

from graphpod_operator.cache.key import Key
from graphpod_operator.cache.store import Store
from graphpod_operator.controller.reconcile import HeldUp, Reconciler
from graphpod_operator.controller.weights_sender import WeightsSender
from graphpod_operator.handlers.kopf_operator import NOTHING, Serving, operate
from graphpod_operator.install.installation import Installation
from graphpod_operator.kube.client import KubernetesCluster, KubernetesDiscovery, KubernetesLeases, KubernetesWatches
from graphpod_operator.kube.clock import Clock, SystemClock
from graphpod_operator.kube.cluster import ApiError, Cluster, Conflict, TimedOut
from graphpod_operator.kube.connection import Connection, connect
from graphpod_operator.kube.lease import Leadership
from graphpod_operator.kube.resources import WATCHED, Resource
from graphpod_operator.manager import health
from graphpod_operator.manager.kopf_thread import KopfThread
from graphpod_operator.observe.admin_port import DEFAULT_URL, HttpAdminPort
from graphpod_operator.observe.download_progress import DownloadProgress
from graphpod_operator.observe.ladder_advisor import LadderAdvisor
from graphpod_operator.observe.warmup_poller import Warmups
from graphpod_operator.telemetry import logs
from graphpod_operator.telemetry.label_values import Result
from graphpod_operator.telemetry.metrics import CONTROLLER, Meters
from graphpod_operator.watch.child_watches import ChildWatches
from graphpod_operator.watch.informer import Informer, fill
from graphpod_operator.watch.optional_kinds import OptionalKinds
from graphpod_operator.watch.relist import Relist
from graphpod_operator.watch.service_watch import ServiceWatch
from graphpod_operator.watch.workqueue import KeyQueue

log = logging.getLogger(__name__)

FILL_RETRY_SECONDS = 2.0
GC_THRESHOLD = 10_000
"""New objects until the collector looks at them; at Python's own 700 it looks all the time while lists are decoded."""
WATCH_FAILURES = "graphpod_operator_watch_failures_total"
STALE_SECONDS = 10.0
"""An operator that waited longer for the Lease lists everything again before it writes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line decides. `namespaces` empty: the whole cluster. `identity` is this process's alone, or
    that of its predecessor in the same pod; operators with the same `lease_namespace` take turns.
    """

    installed: Installation
    """What services are planned with."""
    identity: str
    lease_namespace: str
    port: int = 8080
    namespaces: tuple[str, ...] = ()
    workers: int = 16
    admin_url: str = DEFAULT_URL
    serving: Serving = NOTHING
    """What kopf's thread serves: the admission webhook, the liveness probe."""
    without: tuple[Resource, ...] = ()
    """Optional kinds to leave alone."""


@dataclass(slots=True)
class Readiness:
    """Whether the store is filled."""

    trouble: str | None = "the store is being filled"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the tasks of a running operator share."""

    settings: Settings
    queue: KeyQueue
    meters: Meters
    reconciler: Reconciler
    leadership: Leadership
    resync: Relist
    follower: ChildWatches
    kinds: OptionalKinds
    advisor: LadderAdvisor
    pulse: health.Pulse
    clock: Clock
    refill: Callable[[], Awaitable[None]]
    kopf: KopfThread


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, and raise CancelledError then. Raises what makes going on pointless (LeaseLost for
    one).
    """
    _stop_on_signals()
    settings.serving.check()
    # lists are decoded into many objects, none of them garbage: the collector would walk them, and all that was
    # imported, again and again
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    meters, store, readiness = Meters.make(), Store(), Readiness()
    queue = KeyQueue(
        added=lambda: meters.count("workqueue_adds_total", name=CONTROLLER),
        waited=lambda seconds: meters.observe("workqueue_queue_duration_seconds", seconds, name=CONTROLLER),
    )
    meters.set("controller_runtime_max_concurrent_reconciles", settings.workers, controller=CONTROLLER)

    def queue_all() -> None:
        for service in store.services():
            queue.add(service.key)

    def renewed_late() -> None:
        queue.wake()
        queue_all()

    def reread() -> None:
        reconciler.reread(service.key for service in store.services())
        queue_all()

    async with _connections(meters) as (wire, session):
        clock = SystemClock()
        # what failed while nothing could be written may be waiting for minutes
        leadership = Leadership(
            KubernetesLeases(wire), settings.lease_namespace, settings.identity, clock, renewed_late=renewed_late
        )
        cluster = KubernetesCluster(wire, leadership.fence)
        admin_port = HttpAdminPort(session, settings.admin_url)
        warmups = Warmups(admin_port, queue.add)
        advisor = LadderAdvisor(admin_port, store, clock, queue.add)
        informer = Informer(store, queue, pod_gone=warmups.forget)
        discovery = KubernetesDiscovery(wire)
        kinds = OptionalKinds(discovery, cluster, informer, settings.namespaces, settings.without, done=queue_all)
        reconciler = Reconciler(
            cluster,
            warmups,
            store,
            meters,
            clock,
            kinds,
            settings.installed,
            advisor,
            DownloadProgress(admin_port, clock),
            WeightsSender(admin_port, warmups, clock, meters),
        )
        resync = Relist(cluster, informer, settings.namespaces, kinds, done=reread)
        follower = ChildWatches(
            KubernetesWatches(wire),
            cluster,
            informer,
            settings.namespaces,
            kinds,
            failed=lambda: meters.count(WATCH_FAILURES),
        )
        meters.watch(store, queue, leadership.holds, lambda: kinds.unlisted)
        pulse = health.Pulse(lambda: health.sickness(queue, resync.trust))
        server = await health.serve(
            settings.port,
            meters,
            unhealthy=pulse.trouble,
            unready=lambda: readiness.trouble or leadership.trouble,
        )

        async def served() -> bool:
            return bool(await discovery.serves((Resource.InferenceService,)))

        async def refill() -> None:
            await _fill(cluster, informer, settings.namespaces, kinds, readiness)
            log.info("store filled", extra={"services": sum(1 for _ in store.services())})

        watch = ServiceWatch(informer, settings.namespaces, resync.soon, lambda: meters.count(WATCH_FAILURES), served)
        kopf = KopfThread(partial(operate, settings.serving, settings.namespaces), watch, pulse.trouble)
        kopf.start()
        try:
            await refill()
            gc.freeze()  # the same of the store
            watch.begin()
            await _work(
                Parts(
                    settings,
                    queue,
                    meters,
                    reconciler,
                    leadership,
                    resync,
                    follower,
                    kinds,
                    advisor,
                    pulse,
                    clock,
                    refill,
                    kopf,
                )
            )
        finally:
            kopf.stop()
            await leadership.release()
            await server.cleanup()
            await kopf.leave()


def _stop_on_signals() -> None:
    """End this task on SIGTERM and SIGINT."""
    task = asyncio.current_task()
    assert task is not None  # called from a coroutine
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _work(parts: Parts) -> None:
    """Watches, workers and clocks, until one of them ends; the others end with it."""
    leading = asyncio.create_task(_lead(parts.leadership, parts.clock, parts.refill))
    tasks = [
        *(asyncio.create_task(_worker(parts, leading)) for _ in range(parts.settings.workers)),
        asyncio.create_task(parts.leadership.contend()),
        asyncio.create_task(parts.resync.run()),
        asyncio.create_task(parts.kinds.run()),
        asyncio.create_task(parts.advisor.run(parts.leadership.holds)),
        asyncio.create_task(parts.pulse.beat()),
        *map(asyncio.create_task, parts.follower.all()),
    ]
    try:
        done, _ = await asyncio.wait([*tasks, parts.kopf.ended], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (leading, *tasks):
            task.cancel()
        await asyncio.gather(leading, *tasks, return_exceptions=True)


async def _lead(leadership: Leadership, clock: Clock, refill: Callable[[], Awaitable[None]]) -> None:
    """Return once this operator leads and knows what is."""
    began = clock.monotonic()
    await leadership.won.wait()
    if clock.monotonic() - began > STALE_SECONDS:
        await refill()


async def _worker(parts: Parts, leading: asyncio.Task[None]) -> None:
    """Once this operator leads, take keys and reconcile them, for ever. A failure costs the key a pause, never the
    worker.
    """
    await asyncio.shield(leading)
    while True:
        key = await parts.queue.take()
        with logs.about(key):
            await _turn(parts, key)


async def _turn(parts: Parts, key: Key) -> None:
    """One reconcile, and what it counts as."""
    queue, meters = parts.queue, parts.meters
    started = time.monotonic()
    try:
        pause = await parts.reconciler.reconcile(key)
    except Conflict as error:
        # what was known is old: before the next try writes, it is looked at again, if it has not been already
        queue.add_conflicted(key)
        log.info("another writer was faster; trying again", extra={"error": error})
        meters.count("workqueue_retries_total", name=CONTROLLER)
        result = Result.Conflict
    except Exception as error:
        pause = queue.add_failed(key, rests=isinstance(error, TimedOut))
        extra = {"error": error, "seconds": round(pause, 1)}
        if isinstance(error, HeldUp):
            _come_back(queue, key, error.pause)
        log.error("reconcile failed; trying again", extra=extra, exc_info=not isinstance(error, ApiError))
        meters.count("controller_runtime_reconcile_errors_total", controller=CONTROLLER)
        meters.count("workqueue_retries_total", name=CONTROLLER)
        result = Result.Error
    else:
        queue.forget(key)
        _come_back(queue, key, pause)
        result = Result.Success if pause is None else Result.Later
        meters.set("graphpod_operator_last_success_timestamp_seconds", time.time())
    finally:
        queue.done(key)
    took = time.monotonic() - started
    meters.count("controller_runtime_reconcile_total", controller=CONTROLLER, result=result)
    meters.observe("controller_runtime_reconcile_time_seconds", took, controller=CONTROLLER)
    meters.observe("workqueue_work_duration_seconds", took, name=CONTROLLER)


def _come_back(queue: KeyQueue, key: Key, pause: float | None) -> None:
    """Have a service looked at again after a reconcile's pause."""
    if pause == 0:
        queue.add(key, first=True)
    elif pause is not None:
        queue.add_after(key, pause)


async def _fill(
    cluster: Cluster, informer: Informer, namespaces: tuple[str, ...], kinds: OptionalKinds, readiness: Readiness
) -> None:
    """Fill the store by the informer, however long the API server takes to answer; without the optional kinds whose
    own lists fail.
    """
    while True:
        try:
            await fill(cluster, informer, namespaces, WATCHED)
            await kinds.look(doubted=True)
        except ApiError as error:
            readiness.trouble = f"the store cannot be filled: {error}"
            hint = "; is the CRD installed (graphpod crd)?" if error.status == 404 else ""
            log.error(
                "store not filled; trying again", extra={"error": f"{error}{hint}", "seconds": FILL_RETRY_SECONDS}
            )
            await asyncio.sleep(FILL_RETRY_SECONDS)
        else:
            readiness.trouble = None
            return


@contextlib.asynccontextmanager
async def _connections(meters: Meters) -> AsyncIterator[tuple[Connection, aiohttp.ClientSession]]:
    def answered(code: str, method: str, seconds: float) -> None:
        meters.count("rest_client_requests_total", code=code, method=method)
        meters.observe("rest_client_request_duration_seconds", seconds, verb=method)

    wire = await connect(answered)
    try:
        async with aiohttp.ClientSession() as session:
            yield wire, session
    finally:
        await wire.close()
