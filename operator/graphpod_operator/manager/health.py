"""`/healthz`, `/readyz` and `/metrics` on one port, and what the liveness probe answers by.

`/healthz` asks for a restart, so it fails only where a restart helps: an event loop that lags, one key that never
ends, or a stale watch cache. `/readyz` and a metric report an API server that cannot be reached.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiohttp import web

from graphpod_operator.manager.dual_stack import listen
from graphpod_operator.telemetry.metrics import Meters
from graphpod_operator.watch.relist import Trust
from graphpod_operator.watch.workqueue import KeyQueue

LOOP_LATE_SECONDS = 10.0
KEY_BUSY_SECONDS = 300.0
PULSE_SECONDS = 1.0


class Pulse:
    """The main loop's: each second it leaves here what is wrong. `trouble` may be asked on any thread, and notices a
    loop that leaves nothing.
    """

    def __init__(self, sickness: Callable[[], str | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._sickness = sickness
        self._clock = clock
        self._late = 0.0
        self._due: float | None = None
        self._found: str | None = None

    async def beat(self) -> None:
        """Measure for ever."""
        while True:
            self._due = due = self._clock() + PULSE_SECONDS
            await asyncio.sleep(PULSE_SECONDS)
            self._late = self._clock() - due
            self._found = self._sickness()

    def trouble(self) -> str | None:
        """Why this process should be restarted, or None."""
        late = max(self._late, self._clock() - self._due) if self._due is not None else 0.0
        return f"the event loop is {late:.0f} s late" if late > LOOP_LATE_SECONDS else self._found


def sickness(queue: KeyQueue, trust: Trust) -> str | None:
    """Of what the main loop can see, why this process should be restarted, or None."""
    if (busy := queue.longest_busy()) > KEY_BUSY_SECONDS:
        return f"one key has been worked on for {busy:.0f} s"
    return trust.sickness


async def serve(
    port: int,
    meters: Meters,
    *,
    unhealthy: Callable[[], str | None],
    unready: Callable[[], str | None],
) -> web.AppRunner:
    """Start serving; the two say what is wrong, or None."""

    async def healthz(_: web.Request) -> web.Response:
        return _answer(unhealthy())

    async def readyz(_: web.Request) -> web.Response:
        return _answer(unready())

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=meters.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, listen(port)).start()
    return runner


def _answer(trouble: str | None) -> web.Response:
    return web.Response(text="ok\n") if trouble is None else web.Response(text=f"{trouble}\n", status=503)
