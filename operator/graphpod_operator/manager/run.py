"""The running operator: parts put together, and the tasks that keep them going.

Order of start: lists fill the store and queue every service, then the watches begin and the Lease is contended for, and
with it workers start. Nothing is decided before the lists are done, because an object not heard of yet would pass for
one that is absent. An operator that waits for the Lease keeps its store as warm as the one that leads, and lists once
more before its first write: a watch that froze meanwhile has told nobody.
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

import aiohttp

from graphpod_operator.cache.key import Key
from graphpod_operator.cache.store import Store
from graphpod_operator.controller.reconcile import HeldUp, Reconciler
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.installation import RESTRICTED, Installation
from graphpod_operator.install.network_access import Access
from graphpod_operator.kube.client import KubernetesCluster, KubernetesDiscovery, KubernetesLeases, KubernetesWatches
from graphpod_operator.kube.clock import Clock, SystemClock
from graphpod_operator.kube.connection import Connection, connect
from graphpod_operator.kube.lease import Leadership
from graphpod_operator.kube.port import ApiError, Cluster, Conflict, TimedOut
from graphpod_operator.kube.resources import WATCHED, Resource
from graphpod_operator.manager import health
from graphpod_operator.manager.webhook import Webhook, warning
from graphpod_operator.observe.admin_port import DEFAULT_URL, HttpAdminPort
from graphpod_operator.observe.warmups import Warmups
from graphpod_operator.telemetry import logs
from graphpod_operator.telemetry.label_values import Result
from graphpod_operator.telemetry.metrics import CONTROLLER, Meters
from graphpod_operator.watch import service_watch
from graphpod_operator.watch.child_watches import ChildWatches
from graphpod_operator.watch.feed import Feed, fill
from graphpod_operator.watch.optional_kinds import OptionalKinds
from graphpod_operator.watch.relist import Relist
from graphpod_operator.watch.workqueue import KeyQueue

log = logging.getLogger("graphpod_operator.main")

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

    images: Images
    identity: str
    lease_namespace: str
    port: int = 8080
    namespaces: tuple[str, ...] = ()
    workers: int = 16
    admin_url: str = DEFAULT_URL
    webhook: Webhook | None = None
    prometheus: str = ""
    """Where KEDA asks for the pods' load; empty: services that ask for KEDA are refused."""
    access: Access | None = None
    """Who may reach the pods; None: no NetworkPolicy is made, and one that was is deleted."""
    installed: Installation = RESTRICTED
    """What services may use, and how their pods are made."""
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
    feed: Feed
    follower: ChildWatches
    kinds: OptionalKinds
    pulse: health.Pulse
    clock: Clock
    refill: Callable[[], Awaitable[None]]
    served: Callable[[], Awaitable[bool]]
    """Whether the API server serves InferenceServices."""


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises what makes going on pointless (LeaseLost for one); CancelledError when told
    to stop early.
    """
    _stop_on_signals()
    # lists are decoded into many objects, none of them garbage: the collector would walk them, and all that was
    # imported, again and again
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    meters, store, readiness, pulse = Meters.make(), Store(), Readiness(), health.Pulse()
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

    async with _connections(meters) as (wire, session), warning(settings.webhook, settings.installed.allowed):
        clock = SystemClock()
        # what failed while nothing could be written may be waiting for minutes
        leadership = Leadership(
            KubernetesLeases(wire), settings.lease_namespace, settings.identity, clock, renewed_late=renewed_late
        )
        cluster = KubernetesCluster(wire, leadership.fence)
        warmups = Warmups(HttpAdminPort(session, settings.admin_url), queue.add)
        feed = Feed(store, queue, pod_gone=warmups.forget)
        discovery = KubernetesDiscovery(wire)
        kinds = OptionalKinds(discovery, cluster, feed, settings.namespaces, settings.without, done=queue_all)
        reconciler = Reconciler(
            cluster,
            warmups,
            store,
            meters,
            clock,
            settings.images,
            kinds,
            prometheus=settings.prometheus,
            access=settings.access,
            installed=settings.installed,
        )
        resync = Relist(cluster, feed, settings.namespaces, kinds, done=reread)
        follower = ChildWatches(
            KubernetesWatches(wire),
            cluster,
            feed,
            settings.namespaces,
            kinds,
            failed=lambda: meters.count(WATCH_FAILURES),
        )
        meters.watch(store, queue, leadership.holds)
        server = await health.serve(
            settings.port,
            meters,
            unhealthy=lambda: health.sickness(pulse, queue, resync.trust),
            unready=lambda: readiness.trouble or leadership.trouble,
        )

        async def served() -> bool:
            return bool(await discovery.serves((Resource.InferenceService,)))

        async def refill() -> None:
            await _fill(cluster, feed, settings.namespaces, kinds, readiness)
            log.info("store filled", extra={"services": sum(1 for _ in store.services())})

        try:
            await refill()
            gc.freeze()  # the same of the store
            await _work(
                Parts(
                    settings,
                    queue,
                    meters,
                    reconciler,
                    leadership,
                    resync,
                    feed,
                    follower,
                    kinds,
                    pulse,
                    clock,
                    refill,
                    served,
                )
            )
        finally:
            await leadership.release()
            await server.cleanup()


def _stop_on_signals() -> None:
    """End this task on SIGTERM and SIGINT. The watches put handlers of their own in place once they run."""
    task = asyncio.current_task()
    assert task is not None  # called from a coroutine
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _work(parts: Parts) -> None:
    """Watches, workers and clocks, until one of them ends; the others end with it."""
    main = asyncio.current_task()
    assert main is not None  # called from a coroutine

    def watch_failed() -> None:
        parts.meters.count(WATCH_FAILURES)
        for number in (signal.SIGTERM, signal.SIGINT):  # kopf's handlers outlive it, and do nothing any more
            asyncio.get_running_loop().add_signal_handler(number, main.cancel)

    leading = asyncio.create_task(_lead(parts.leadership, parts.clock, parts.refill))
    tasks = [
        *(asyncio.create_task(_worker(parts, leading)) for _ in range(parts.settings.workers)),
        asyncio.create_task(parts.leadership.contend()),
        asyncio.create_task(parts.resync.run()),
        asyncio.create_task(parts.kinds.run()),
        asyncio.create_task(parts.pulse.beat()),
        *map(asyncio.create_task, parts.follower.all()),
    ]
    # kopf ends the tasks it finds younger than itself, so ours are made first
    watching = asyncio.create_task(
        service_watch.run(parts.feed, parts.settings.namespaces, parts.resync.soon, watch_failed, parts.served)
    )
    try:
        done, _ = await asyncio.wait([*tasks, watching], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (leading, *tasks, watching):
            task.cancel()
        await asyncio.gather(leading, *tasks, watching, return_exceptions=True)
        # kopf, stopped while it lists, leaves generators that asyncio complains of as the loop ends
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)


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
        told = {"error": error, "seconds": round(pause, 1)}
        if isinstance(error, HeldUp):
            _come_back(queue, key, error.pause)
        log.error("reconcile failed; trying again", extra=told, exc_info=not isinstance(error, ApiError))
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
    cluster: Cluster, feed: Feed, namespaces: tuple[str, ...], kinds: OptionalKinds, readiness: Readiness
) -> None:
    """Fill the store through the feed, however long the API server takes to answer."""
    while True:
        try:
            await fill(cluster, feed, namespaces, WATCHED)
            await kinds.look()
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
    wire = await connect(lambda code, method: meters.count("rest_client_requests_total", code=code, method=method))
    try:
        async with aiohttp.ClientSession() as session:
            yield wire, session
    finally:
        await wire.close()
