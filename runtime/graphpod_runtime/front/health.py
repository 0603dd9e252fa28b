"""The admin port: probes, warm-up and metrics. Kept apart from the API so that a network policy can part them, and on
an event loop of its own, so that a long body or a busy stream delays no probe.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from graphpod_runtime.front.metrics.exporter import Exporter
from graphpod_runtime.front.status import Status
from graphpod_runtime.front.watchdog import Watchdog

SCRAPE_HEADER = "X-Prometheus-Scrape-Timeout-Seconds"
"""Prometheus and what stands in for it (vmagent, Alloy, OpenTelemetry's receiver) send it with each scrape; a person
with curl does not.
"""


def admin_app(status: Status, watchdog: Watchdog, exporter: Exporter) -> Starlette:
    """GET /livez /startupz /readyz /warmup /metrics."""

    def answer(ok: bool, reason: str) -> Response:
        return PlainTextResponse("ok\n" if ok else f"{reason}\n", 200 if ok else 503)

    async def livez(request: Request) -> Response:
        stuck = watchdog.stuck() or watchdog.held()
        return answer(stuck is None and (status.engine_alive or not status.started), stuck or "the engine has died")

    async def startupz(request: Request) -> Response:
        return answer(status.started, f"warm-up: {status.state}")

    async def readyz(request: Request) -> Response:
        return answer(status.ready, "draining" if status.draining else f"warm-up: {status.state}")

    async def warmup(request: Request) -> Response:
        return JSONResponse(status.warmup())

    async def metrics(request: Request) -> Response:
        if SCRAPE_HEADER in request.headers:
            status.scraped()
        body, content_type = exporter.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    handlers = (livez, startupz, readyz, warmup, metrics)
    return Starlette(routes=[Route(f"/{handler.__name__}", handler, methods=["GET"]) for handler in handlers])
