"""The event loop that the operator runs on."""

import asyncio
import logging
from typing import Any

import uvloop

log = logging.getLogger(__name__)

CLOSED = "the handler is closed"
"""What uvloop says of a write to a connection that is gone."""


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, with an ear for what is no error."""
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_tell)
    return loop


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An uncaught exception, as an error with its traceback. But a connection that its peer closed while TLS was about
    to write is no error: asyncio raises an OSError there and logs it at level debug, uvloop a RuntimeError."""
    error = context.get("exception")
    if isinstance(error, RuntimeError) and str(error).endswith(CLOSED):
        log.debug("connection closed by its peer", extra={"error": error})
    else:
        loop.default_exception_handler(context)
