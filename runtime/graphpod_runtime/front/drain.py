"""The end that was asked for: SIGTERM to exit 0.

Not ready at once, so that no balancer sends more; still accepting for a while, because balancers learn late; then the
API port closes, open requests get `drainSeconds`, and what is left is cut with an error. What requests leave of that
time, the engine has for pages of the KV cache that it keeps in files.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from graphpod_runtime.front.requests.engine_client import EngineClient
from graphpod_runtime.front.status import Status

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger("graphpod.front")

ACCEPT_SECONDS = 5.0
"""How long after SIGTERM new requests are still served (endpoints propagate through kube-proxy and gateways)."""
CUT_SECONDS = 2.0
"""How long the connections of requests that were cut have for their last event."""
LEAST_SECONDS = 1.5
"""For files, where requests took all of `drainSeconds`. All that comes after these takes less than the 10 s that the
kubelet waits on top."""


async def drain(
    status: Status,
    engine: EngineClient,
    server: "uvicorn.Server",
    serving: "asyncio.Task[None]",
    accept_seconds: float = ACCEPT_SECONDS,
) -> float:
    """Returns when the API port has closed and no request is open: the seconds for what the engine keeps. `serving` is
    `server`'s task."""
    status.draining = True
    log.info("draining: %d open requests, accepting for %g s more", engine.open, accept_seconds)
    await asyncio.sleep(accept_seconds)
    status.refusing = True
    server.should_exit = True
    began = time.monotonic()
    done, _ = await asyncio.wait((serving,), timeout=status.config.serving.drain_seconds)
    if not done:
        log.warning("%d requests are cut after %d s", engine.open, status.config.serving.drain_seconds)
        engine.abort_all("the server is shutting down and the time to finish is over; send the request again")
        await asyncio.wait((serving,), timeout=CUT_SECONDS)
    if status.config.features.host_cache_folder is None:
        return 0.0
    return max(LEAST_SECONDS, status.config.serving.drain_seconds - (time.monotonic() - began))
