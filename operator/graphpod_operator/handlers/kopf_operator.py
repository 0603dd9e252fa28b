"""kopf's operator with our handlers: what it sees goes to the reconcile loop, and that is all it does.

Of services there is an `event` handler only, so kopf adds no finalizer and no annotation, and writes nothing. What
belongs to services is watched by `watch.child_watches`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import kopf

from graphpod_operator.explain.admission_warnings import warnings_of
from graphpod_operator.handlers.admission_server import ID, AdmissionServer
from graphpod_operator.handlers.bounded_responses import bounded
from graphpod_operator.handlers.login import with_responses
from graphpod_operator.handlers.settings import configure, shorten
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.kube.resources import Resource
from graphpod_operator.watch.service_watch import Versions

log = logging.getLogger(__name__)

SERVICES = Resource.InferenceService


@dataclass(frozen=True, slots=True)
class ReconcileLoop:
    """What kopf's handlers want of the other loop; each may be called on kopf's."""

    seen: Callable[[str | None, Raw], None]
    """An event of a service came: its type, None where kopf listed it, and the object."""
    may_watch: Callable[[], Awaitable[Versions]]
    """Returns once the API server may be asked for services: the versions that the watch goes on from."""
    trouble: Callable[[], str | None]
    """Why a restart of the process would help, or None."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """Where the liveness probe is answered: an address of this machine, and a port."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """As kopf wants it."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/healthz"

    def check(self) -> None:
        """Raises OSError where the port is taken, which kopf would find out again and again."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            socket.create_server((self.host, self.port), family=family).close()
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {self.host}, port {self.port}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Serving:
    """What kopf serves meanwhile: nothing, unless it is given."""

    webhook: AdmissionServer | None = None
    liveness: Liveness | None = None

    def check(self) -> None:
        """Raises OSError where one of them could not serve."""
        if self.webhook is not None:
            self.webhook.check()
        if self.liveness is not None:
            self.liveness.check()


NOTHING = Serving()


async def operate(
    serving: Serving, namespaces: tuple[str, ...], reconciling: ReconcileLoop, stop: asyncio.Event
) -> None:
    """Run until `stop` is set, which kopf's end does as well. Raises what kopf takes for fatal."""
    logging.getLogger("aiohttp.server").addFilter(_is_fault)
    settings = kopf.OperatorSettings()
    await kopf.operator(
        registry=registry(reconciling, serving, settings, stop),
        settings=settings,
        clusterwide=not namespaces,
        namespaces=namespaces,
        liveness_endpoint=serving.liveness.url if serving.liveness is not None else None,
        stop_flag=stop,
    )


def registry(
    reconciling: ReconcileLoop, serving: Serving, settings: kopf.OperatorSettings, stop: asyncio.Event
) -> kopf.OperatorRegistry:
    """The handlers of one run."""
    handlers = kopf.OperatorRegistry()
    listed: dict[str | None, int] = {}
    connect = with_responses(bounded(partial(shorten, settings), listed))

    @kopf.on.startup(registry=handlers)
    async def begin(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        settings.admission.server = serving.webhook

    @kopf.on.cleanup(registry=handlers)
    async def end(**_: Any) -> None:
        stop.set()  # kopf waits for who waits for it: 5 s, where an error ended the run

    @kopf.on.login(id="login", registry=handlers)
    async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
        listed.update(await reconciling.may_watch())  # kopf asks the API server for nothing before
        return await connect(**kwargs)

    @kopf.on.probe(id="reconcile_loop", registry=handlers)
    async def reconcile_loop(**_: Any) -> None:
        if (trouble := reconciling.trouble()) is not None:
            raise kopf.PermanentError(trouble)  # any other error kopf would try again before it answers

    @kopf.on.event(SERVICES.group, SERVICES.version, SERVICES.plural, registry=handlers)
    async def seen(event: Mapping[str, Any], **_: Any) -> None:
        reconciling.seen(event["type"], event["object"])

    if (webhook := serving.webhook) is not None:

        @kopf.on.validate(SERVICES.group, SERVICES.version, SERVICES.plural, id=ID, registry=handlers)
        async def warn(warnings: list[str], **review: Any) -> None:
            try:
                warnings += warnings_of(dict(review["new"]), dict(review["old"] or {}), webhook.allowed)
            except Exception:
                # kopf would have the API server refuse the write, which no mistake of ours may
                log.exception("no warnings: a fault of the operator")

    return handlers


def _is_fault(record: logging.LogRecord) -> bool:
    """Whether a line of aiohttp's is about more than a probe that failed: kopf has logged why, and aiohttp would add a
    traceback to each such answer.
    """
    error = record.exc_info[1] if record.exc_info else None
    return error is None or not isinstance(error.__cause__, kopf.PermanentError)
