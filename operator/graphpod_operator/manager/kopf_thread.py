"""The thread that kopf runs on, with an event loop of its own: started, started again after an error, stopped.

kopf hears no signal here. The main thread does, and stops this one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from graphpod_operator.handlers.kopf_operator import ReconcileLoop
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.manager.event_loop import new_loop
from graphpod_operator.watch.service_watch import ServiceWatch, Versions

log = logging.getLogger(__name__)

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds until kopf, which an error ended, watches again, by how often one has; the last stays."""
HEALTHY_SECONDS = 60.0
"""A run that lasted as long failed for the first time."""
GRACE_SECONDS = 0.25
"""For kopf to end in order. Then what it waits for is cancelled: it would wait 5 s for requests that hang."""
TASKS_SECONDS = 2.0
"""For the tasks that kopf leaves behind. The webhook takes 1 s for a review that is still being sent."""
LEAVE_SECONDS = 5.0
"""The process ends without a thread that has not ended by then."""

Operate = Callable[[ReconcileLoop, asyncio.Event], Coroutine[Any, Any, None]]


class KopfThread:
    """kopf's operator, run by `operate` until its event is set. To be used on the main loop, on which alone `watch` is
    called; `trouble` is called on kopf's.
    """

    def __init__(self, operate: Operate, watch: ServiceWatch, trouble: Callable[[], str | None]) -> None:
        self._main = asyncio.get_running_loop()
        self._own = new_loop()
        self._operate = partial(operate, ReconcileLoop(self._hand_over, self._until_watching, trouble))
        self._watch = watch
        self._stopping = False
        self._stop = asyncio.Event()
        self._begins_at = 0.0
        self._running: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[None] = self._main.create_future()
        """Done when the thread has ended, with what ended it other than `stop`."""
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        """Begin. It watches once `watch` says that it may."""
        self._thread.start()

    def stop(self) -> None:
        """Have it end soon."""
        self._own.call_soon_threadsafe(self._end)

    async def leave(self) -> None:
        """Return once it has ended, or seconds later."""
        self.stop()
        done, _ = await asyncio.wait({self.ended}, timeout=LEAVE_SECONDS)
        if done:
            self._own.close()
        else:
            log.warning("kopf does not end; going without it", extra={"seconds": LEAVE_SECONDS})

    # on kopf's thread

    def _run(self) -> None:
        try:
            self._own.run_until_complete(self._supervise())
            self._own.run_until_complete(_end_tasks())
            self._own.run_until_complete(self._own.shutdown_asyncgens())
        except BaseException as error:  # noqa: BLE001  whatever it is, the main thread ends by it
            self._main.call_soon_threadsafe(self.ended.set_exception, error)
        else:
            self._main.call_soon_threadsafe(self.ended.set_result, None)

    async def _supervise(self) -> None:
        failures = 0
        while not self._stopping:
            began = self._own.time()
            self._stop = asyncio.Event()
            self._running = asyncio.create_task(self._operate(self._stop))
            await asyncio.wait({self._running})
            if self._stopping:
                return
            failures = 0 if self._own.time() - began > HEALTHY_SECONDS else failures
            pause = PAUSES[min(failures, len(PAUSES) - 1)]
            failures += 1
            error = "cancelled" if self._running.cancelled() else self._running.exception() or "it ended"
            log.error("the watch of services ended; beginning again", extra={"error": error, "seconds": pause})
            self._begins_at = self._own.time() + pause
            self._main.call_soon_threadsafe(self._watch.failed)

    def _end(self) -> None:
        if self._stopping:
            return  # kopf, cancelled twice, leaves its tasks as they are
        self._stopping = True
        self._stop.set()
        if self._running is not None:
            self._own.call_later(GRACE_SECONDS, self._running.cancel)

    def _hand_over(self, event: str | None, raw: Raw) -> None:
        self._main.call_soon_threadsafe(self._watch.seen, event, raw)

    async def _until_watching(self) -> Versions:
        """kopf serves its probe meanwhile."""
        await asyncio.sleep(self._begins_at - self._own.time())
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._watch.may_watch(), self._main))


async def _end_tasks() -> None:
    """Return once nothing else runs on this loop. kopf has cancelled its tasks, and does not wait for them once it is
    cancelled itself.
    """
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=TASKS_SECONDS)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
