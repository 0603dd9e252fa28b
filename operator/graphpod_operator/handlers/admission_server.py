"""The port of the admission webhook, as kopf takes a server of one's own: TLS, one path, one certificate.

kopf's own server closes its port while it takes a renewed certificate, ends the operator where it finds that half
written, and answers no review of more than 1 MiB. This one takes the certificate in place, and the largest review that
an API server sends. It trusts no review: whoever reaches the port may send one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import kopf
import msgspec
from aiohttp import web

from graphpod_operator.install.allow_lists import AllowLists
from graphpod_operator.kube import bounds
from graphpod_operator.kube.resources import Resource

log = logging.getLogger(__name__)

ID = "warnings"
"""Of the handler that answers, and the last part of the path."""
PATH = f"/{ID}"
RELOAD_SECONDS = 30.0
"""Between two looks at the certificate; the kubelet takes a minute to bring a renewed one anyway."""
BODY_MAX = 3 * 2**20
"""Bytes of a review: an object and its predecessor."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The folder with `tls.crt` and `tls.key`."""

    folder: Path

    def age(self) -> tuple[int, int]:
        """Changes when the certificate does. Raises OSError where it is not there."""
        return (self._certificate.stat().st_mtime_ns, self._key.stat().st_mtime_ns)

    def context(self) -> ssl.SSLContext:
        """TLS with the certificate as it is now. Raises OSError where it is not there, or none."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Use the certificate as it is now for every new connection. Raises OSError likewise."""
        context.load_cert_chain(self._certificate, self._key)

    @property
    def _certificate(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def _key(self) -> Path:
        return self.folder / "tls.key"


@dataclass(frozen=True, slots=True)
class AdmissionServer:
    """Serves while kopf runs. `listen` makes a socket for a port; each run of kopf takes another."""

    port: int
    certificate: Certificate
    listen: Callable[[int], socket.socket]
    allowed: AllowLists
    """What services may use; of everything else who writes one is warned."""

    def check(self) -> None:
        """Raises OSError without a certificate or where the port is taken."""
        self.certificate.context()
        self.listen(self.port).close()

    async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        """Serve reviews with kopf's `fn` until cancelled. The configuration that it yields has no use:
        the chart has made it. Raises OSError without a certificate or where the port is taken.
        """
        context = self.certificate.context()
        app = web.Application(client_max_size=BODY_MAX)
        app.add_routes([web.post(PATH, partial(_answer, fn))])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        renewal = asyncio.create_task(_renew(self.certificate, context))
        try:
            await web.SockSite(runner, self.listen(self.port), ssl_context=context).start()
            yield {}
            await renewal
        finally:
            renewal.cancel()
            await runner.cleanup()


class NotAReview(ValueError):
    """What was posted is no AdmissionReview of an InferenceService."""


class _Kind(msgspec.Struct):
    group: str
    version: str
    resource: str


SERVICES = Resource.InferenceService
OURS = _Kind(SERVICES.group, SERVICES.version, SERVICES.plural)


class _Object(msgspec.Struct):
    metadata: dict[str, Any]


class _Request(msgspec.Struct):
    uid: str
    resource: _Kind
    userInfo: dict[str, Any]
    object: _Object
    oldObject: _Object | None = None


class _Review(msgspec.Struct):
    """What kopf reads of a review without a look whether it is there."""

    request: _Request


def checked(body: bytes) -> dict[str, Any]:
    """A review from its JSON, each of its objects within bounds. Raises NotAReview."""
    try:
        review: dict[str, Any] = json.loads(body)
        kind = msgspec.convert(review, _Review).request.resource
    except (ValueError, RecursionError) as error:
        raise NotAReview(f"expected an AdmissionReview: {error}") from error
    if kind != OURS:
        raise NotAReview(f"expected a review of an InferenceService, not of {kind.resource}.{kind.group}")
    request = review["request"]
    for which in ("object", "oldObject"):
        raw = request.get(which)
        if raw is not None and (why := bounds.breach(raw.get("spec"))) is not None:
            request[which] = bounds.stripped(raw, why)
    # kopf keeps what belongs to an object that it is asked about, for ever, unless the object is not there yet; who
    # sends reviews could have it keep anything
    request["operation"] = "CREATE"
    return review


async def _answer(fn: kopf.WebhookFn, request: web.Request) -> web.Response:
    try:
        review = checked(await request.read())
    except NotAReview as error:
        return web.Response(status=400, text=f"{error}\n")
    return web.json_response(await fn(cast(Any, review), webhook=ID))


async def _renew(certificate: Certificate, context: ssl.SSLContext) -> None:
    """Look for a renewed certificate, for ever. Half-written files are tried again at the next look."""
    known = certificate.age()
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        try:
            if (age := certificate.age()) != known:
                certificate.context()  # a context that takes half of a pair has lost the one it had
                certificate.load(context)
                known = age
                log.info("new certificate")
        except OSError as error:
            log.warning("certificate not read; the old one stays", extra={"error": error})
