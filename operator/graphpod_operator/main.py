"""The running operator: parts put together, and the tasks that keep them going.

Order of start: lists fill the store and queue every service, workers start, then the watches. Until then nothing is
decided, because an object not heard of yet would pass for one that is absent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp

from graphpod_operator import health, watch
from graphpod_operator.adminport import DEFAULT_URL, HttpAdminPort
from graphpod_operator.clock import SystemClock
from graphpod_operator.cluster import KubernetesCluster, connect
from graphpod_operator.feed import Feed, fill
from graphpod_operator.metrics import CONTROLLER, Meters
from graphpod_operator.port import ApiError
from graphpod_operator.queue import KeyQueue
from graphpod_operator.reconcile import Reconciler
from graphpod_operator.store import Store
from graphpod_operator.warmup import Warmups
from graphpod_operator.webhook import Webhook, warning

log = logging.getLogger(__name__)

RESYNC_SECONDS = 600.0
FILL_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line decides. `namespaces` empty: the whole cluster."""

    engine_image: str
    port: int = 8080
    namespaces: tuple[str, ...] = ()
    workers: int = 16
    admin_url: str = DEFAULT_URL
    webhook: Webhook | None = None


@dataclass(slots=True)
class Readiness:
    """Whether the operator acts now."""

    trouble: str | None = "the store is being filled"


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises what makes going on pointless; CancelledError when told to stop early."""
    _stop_on_signals()
    meters, store, readiness, pulse = Meters.make(), Store(), Readiness(), health.Pulse()
    queue = KeyQueue(added=lambda: meters.count("workqueue_adds_total", name=CONTROLLER))
    meters.watch(store, queue)
    async with _connections(meters) as (cluster, session), warning(settings.webhook):
        warmups = Warmups(HttpAdminPort(session, settings.admin_url))
        reconciler = Reconciler(cluster, warmups, store, meters, SystemClock(), settings.engine_image)
        server = await health.serve(settings.port, pulse, queue, meters, lambda: readiness.trouble)
        try:
            feed = Feed(store, queue, warmups)
            await _fill(cluster, feed, settings.namespaces, readiness)
            log.info("store filled: %d services", sum(1 for _ in store.services()))
            await _work(settings, reconciler, cluster, store, queue, meters, readiness, pulse, feed)
        finally:
            await server.cleanup()


def _stop_on_signals() -> None:
    """End this task on SIGTERM and SIGINT. The watches put handlers of their own in place once they run."""
    task = asyncio.current_task()
    assert task is not None  # called from a coroutine
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _work(
    settings: Settings,
    reconciler: Reconciler,
    cluster: KubernetesCluster,
    store: Store,
    queue: KeyQueue,
    meters: Meters,
    readiness: Readiness,
    pulse: health.Pulse,
    feed: Feed,
) -> None:
    """Watches, workers and clocks, until one of them ends; the others end with it."""
    tasks = [
        *(asyncio.create_task(_worker(queue, reconciler, meters)) for _ in range(settings.workers)),
        asyncio.create_task(_resync(cluster, feed, store, settings.namespaces, queue, reconciler, readiness)),
        asyncio.create_task(pulse.beat()),
    ]
    # kopf ends the tasks it finds younger than itself, so ours are made first
    watching = asyncio.create_task(watch.run(feed, settings.namespaces))
    try:
        done, _ = await asyncio.wait([*tasks, watching], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (*tasks, watching):
            task.cancel()
        await asyncio.gather(*tasks, watching, return_exceptions=True)


async def _worker(queue: KeyQueue, reconciler: Reconciler, meters: Meters) -> None:
    """Take keys and reconcile them, for ever. A failure costs the key a pause, never the worker."""
    while True:
        key = await queue.take()
        started = time.monotonic()
        try:
            pause = await reconciler.reconcile(key)
        except Exception as error:
            wait = queue.add_failed(key)
            expected = isinstance(error, ApiError)
            log.error("%s: %s; again in %.0f s", key, error, wait, exc_info=not expected)
            meters.count("controller_runtime_reconcile_errors_total", controller=CONTROLLER)
            meters.count("workqueue_retries_total", name=CONTROLLER)
            result = "error"
        else:
            queue.forget(key)
            if pause is not None:
                queue.add_after(key, pause)
            result = "success" if pause is None else "requeue_after"
            meters.set("graphpod_operator_last_success_timestamp_seconds", time.time())
        finally:
            queue.done(key)
        meters.count("controller_runtime_reconcile_total", controller=CONTROLLER, result=result)
        meters.observe("controller_runtime_reconcile_time_seconds", time.monotonic() - started, controller=CONTROLLER)


async def _fill(cluster: KubernetesCluster, feed: Feed, namespaces: tuple[str, ...], readiness: Readiness) -> None:
    """Fill the store through the feed, however long the API server takes to answer."""
    while True:
        try:
            await fill(cluster, feed, namespaces)
        except ApiError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # A list that failed as the signal came has taken the place of the cancellation.
                raise asyncio.CancelledError from error
            readiness.trouble = f"the store cannot be filled: {error}"
            hint = "; is the CRD installed (graphpod crd)?" if error.status == 404 else ""
            log.error("%s%s; again in %.0f s", readiness.trouble, hint, FILL_RETRY_SECONDS)
            await asyncio.sleep(FILL_RETRY_SECONDS)
        else:
            readiness.trouble = None
            return


async def _resync(
    cluster: KubernetesCluster,
    feed: Feed,
    store: Store,
    namespaces: tuple[str, ...],
    queue: KeyQueue,
    reconciler: Reconciler,
    readiness: Readiness,
) -> None:
    """List everything again from time to time: a cut watch may have missed deletions."""
    while True:
        await asyncio.sleep(RESYNC_SECONDS)
        await _fill(cluster, feed, namespaces, readiness)
        keys = [service.key for service in store.services()]
        reconciler.reread(keys)
        for key in keys:
            queue.add(key)


@contextlib.asynccontextmanager
async def _connections(meters: Meters) -> AsyncIterator[tuple[KubernetesCluster, aiohttp.ClientSession]]:
    cluster = await connect(lambda code, method: meters.count("rest_client_requests_total", code=code, method=method))
    try:
        async with aiohttp.ClientSession() as session:
            yield cluster, session
    finally:
        await cluster.close()
