"""The admin port: probes, warm-up and metrics. Kept apart from the API so that a network policy can part them, and on
an event loop of its own, so that a long body or a busy stream delays no probe.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from graphpod_policy.http_limits import POD_UID_HEADER
from graphpod_runtime.front.access.api_key import ApiKey
from graphpod_runtime.front.metrics.exporter import Exporter
from graphpod_runtime.front.requests.sleeping import MOST_REVISION, NotNow, Sleeping
from graphpod_runtime.front.status import Change, Status
from graphpod_runtime.front.watchdog import Watchdog

SCRAPE_HEADER = "X-Prometheus-Scrape-Timeout-Seconds"
"""Prometheus and what stands in for it (vmagent, Alloy, OpenTelemetry's receiver) send it with each scrape; a person
with curl does not.
"""
MISDIRECTED = 421
DEFAULT_WAIT_SECONDS = 60
"""Of a change of the weights' place, for its end."""


def admin_app(
    status: Status,
    watchdog: Watchdog,
    exporter: Exporter,
    sleeping: Sleeping | None = None,
    key: ApiKey | None = None,
) -> Starlette:
    """GET /livez /startupz /readyz /warmup /metrics; POST /sleep /wake /reload, by `sleeping`, for who sends the `key`:
    monitoring reaches this port, and is not to take a service from its clients. An order that names another pod is
    refused.
    """

    def answer(ok: bool, reason: str) -> Response:
        return PlainTextResponse("ok\n" if ok else f"{reason}\n", 200 if ok else 503)

    async def livez(request: Request) -> Response:
        stuck = watchdog.stuck() or watchdog.held()
        return answer(stuck is None and (status.engine_alive or not status.started), stuck or "the engine has died")

    async def startupz(request: Request) -> Response:
        return answer(status.started, f"warm-up: {status.state}")

    async def readyz(request: Request) -> Response:
        if status.started and status.change is not None and not status.draining:
            return answer(False, status.sleep_state)
        return answer(status.ready, "draining" if status.draining else status.engine_state)

    async def warmup(request: Request) -> Response:
        return JSONResponse(status.warmup())

    async def metrics(request: Request) -> Response:
        if SCRAPE_HEADER in request.headers:
            status.scraped()
        body, content_type = exporter.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def changed(request: Request) -> Response:
        assert sleeping is not None, "it has no route otherwise"
        if key is not None and not key.admits(request.headers.get("authorization", "")):
            words = "this needs the header Authorization: Bearer KEY, with a key of the API port\n"
            return PlainTextResponse(words, 401, {"www-authenticate": "Bearer"})
        meant = request.headers.get(POD_UID_HEADER, status.pod_uid)
        if meant != status.pod_uid:
            words = f"this is the pod of uid {status.pod_uid}, and the order is for {meant[:64]!r}: nothing was done\n"
            return PlainTextResponse(words, MISDIRECTED)
        what, revision = Change(request.url.path.removeprefix("/")), request.query_params.get("revision", "")
        try:
            wait = float(request.query_params.get("wait", DEFAULT_WAIT_SECONDS))
        except ValueError:
            return PlainTextResponse("wait is a number of seconds\n", 400)
        if what is Change.Reload and not (0 < len(revision) <= MOST_REVISION and revision.isprintable()):
            words = f"reload needs ?revision=NAME, of up to {MOST_REVISION} printable characters\n"
            return PlainTextResponse(words, 400)
        try:
            done = await sleeping.change(what, revision, max(0.0, wait))
        except NotNow as error:
            return PlainTextResponse(f"{error}; try again later\n", 503, {"retry-after": "1"})
        if not done:
            return JSONResponse(status.sleep(), 202)
        return JSONResponse(status.sleep(), 409 if status.residence.problem else 200)

    handlers = (livez, startupz, readyz, warmup, metrics)
    reads = [Route(f"/{handler.__name__}", handler, methods=["GET"]) for handler in handlers]
    changes = () if sleeping is None else tuple(Change)
    return Starlette(routes=[*reads, *(Route(f"/{change}", changed, methods=["POST"]) for change in changes)])
