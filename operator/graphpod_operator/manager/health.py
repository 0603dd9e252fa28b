"""`/healthz`, `/readyz` and `/metrics` on one port.

`/healthz` asks for a restart, so it fails only where a restart helps: an event loop that lags, one key that never
ends, or watches that do not tell what is. An API server that cannot be reached is told by `/readyz` and a metric.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from graphpod_operator.manager.sockets import listen
from graphpod_operator.telemetry.metrics import Meters
from graphpod_operator.watch.relist import Trust
from graphpod_operator.watch.workqueue import KeyQueue

LOOP_LATE_SECONDS = 10.0
KEY_BUSY_SECONDS = 300.0
PULSE_SECONDS = 1.0


class Pulse:
    """How late the event loop runs its timers."""

    def __init__(self) -> None:
        self._late = 0.0

    async def beat(self) -> None:
        """Measure for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PULSE_SECONDS
            await asyncio.sleep(PULSE_SECONDS)
            self._late = loop.time() - due

    @property
    def late_seconds(self) -> float:
        """Lateness of the last beat."""
        return self._late


def sickness(pulse: Pulse, queue: KeyQueue, trust: Trust) -> str | None:
    """Why this process should be restarted, or None."""
    if pulse.late_seconds > LOOP_LATE_SECONDS:
        return f"the event loop is {pulse.late_seconds:.0f} s late"
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
