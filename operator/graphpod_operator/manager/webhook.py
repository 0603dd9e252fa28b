"""The admission webhook's port: TLS, one path, the certificate read again when its files change."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import web

from graphpod_operator.explain.admission import NotAReview, answer
from graphpod_operator.install.allow_lists import AllowLists
from graphpod_operator.manager.sockets import listen

log = logging.getLogger("graphpod_operator.webhook")

PATH = "/warnings"
RELOAD_SECONDS = 30.0
"""Between two looks at the certificate; the kubelet takes a minute to bring a renewed one anyway."""
BODY_MAX = 3 * 2**20
"""Bytes of a review: an object and its predecessor."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where it listens, and the folder with `tls.crt` and `tls.key`."""

    port: int
    certificates: Path

    def age(self) -> tuple[int, int]:
        """Changes when the certificate does."""
        return (self._certificate.stat().st_mtime_ns, self._key.stat().st_mtime_ns)

    def load(self, context: ssl.SSLContext) -> None:
        """Use the certificate as it is now for every new connection."""
        context.load_cert_chain(self._certificate, self._key)

    @property
    def _certificate(self) -> Path:
        return self.certificates / "tls.crt"

    @property
    def _key(self) -> Path:
        return self.certificates / "tls.key"


@contextlib.asynccontextmanager
async def warning(webhook: Webhook | None, allowed: AllowLists) -> AsyncIterator[None]:
    """Serve meanwhile, if there is a webhook, which warns of what is not `allowed`. Raises OSError without a
    certificate or where the port is taken.
    """
    if webhook is None:
        yield
        return
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    webhook.load(context)
    app = web.Application(client_max_size=BODY_MAX)
    app.add_routes([web.post(PATH, partial(_review, allowed))])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    renewal = asyncio.create_task(_renew(webhook, context))
    try:
        await web.SockSite(runner, listen(webhook.port), ssl_context=context).start()
        yield
    finally:
        renewal.cancel()
        await runner.cleanup()


async def _review(allowed: AllowLists, request: web.Request) -> web.Response:
    try:
        return web.json_response(answer(json.loads(await request.read()), allowed))
    except (ValueError, RecursionError) as error:
        kind = "not JSON: " if not isinstance(error, NotAReview) else ""
        return web.Response(status=400, text=f"{kind}{error}\n")


async def _renew(webhook: Webhook, context: ssl.SSLContext) -> None:
    """Look for a renewed certificate, for ever. Half-written files are tried again at the next look."""
    known = webhook.age()
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        try:
            if (age := webhook.age()) != known:
                webhook.load(context)
                known = age
                log.info("new certificate")
        except OSError as error:
            log.warning("certificate not read; the old one stays", extra={"error": error})
