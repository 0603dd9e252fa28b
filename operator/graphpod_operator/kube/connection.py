"""One connection to the API server, over kubernetes.aio: requests, answers within bounds, the port's errors.

The only file that imports the Kubernetes client, which gives connection, credentials and their renewal.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import getproxies

import aiohttp
import msgspec
from kubernetes.aio import client, config

from graphpod_operator.kube import bounds
from graphpod_operator.kube.bounds import Page
from graphpod_operator.kube.cluster import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Raw,
    ServerRefused,
    Terminating,
    TimedOut,
    Unavailable,
    Unreached,
)

REQUEST_TIMEOUT = 30.0
"""Seconds one request may take."""
ERROR_BYTES = 64 * 1024
"""Of an answer that says no: it may repeat the object that it refuses."""
SAID = 2048
"""Characters of the server's words that are kept."""
CONNECT_TIMEOUT = 3.0
"""Seconds of it until the request is on its way: one that is held up longer would be sent by who may lead no more."""
JSON = "application/json"
_UNTYPED = "failed to create typed patch object"
"""An apply with a field of the wrong name or type is answered with a 500; asking again would not help."""

_ENDING = "NamespaceTerminating"
"""The cause in a 403 to a create in a namespace that is being deleted."""

D = TypeVar("D")
Answered = Callable[[str, str, float], None]
"""Called for every answer: HTTP status (or `<error>`), method, and seconds until it began."""


async def connect(answered: Answered, context: str | None = None) -> Connection:
    """The cluster this process is meant for: that of its service account, else that of its kubeconfig; with a
    `context`, that of the kubeconfig. Raises Unavailable when it has neither.
    """
    configuration = client.Configuration()
    try:
        if context is not None:
            raise config.ConfigException
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        try:
            _some_kubeconfig()
            await config.load_kube_config(client_configuration=configuration, context=context)  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            raise Unavailable(0, f"no cluster to ask: {error}; set KUBECONFIG") from error
    configuration.connection_pool_maxsize = 0  # as many as there are workers: none waits for another's answer
    # aiohttp with trust_env reads ~/.netrc for every request, in a thread
    configuration.client_session_kwargs = {"trust_env": bool(getproxies())}
    return Connection(client.ApiClient(configuration), answered)


def namespace_of(context: str | None = None) -> str | None:
    """The namespace that the kubeconfig gives a context, or its current one; None where it gives none."""
    try:
        _some_kubeconfig()
        contexts, current = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        return None
    chosen = next((one for one in contexts if one["name"] == context), {}) if context else current
    namespace = ((chosen or {}).get("context") or {}).get("namespace")
    return namespace if isinstance(namespace, str) else None


def _some_kubeconfig() -> None:
    """Raises ConfigException if no kubeconfig is a file: the client would log that, and complain of its contents."""
    paths = config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path):
        raise config.ConfigException(f"no kubeconfig at {paths}")


class TooLong(Unavailable):
    """An answer was not read to its end."""


class Connection:
    """One connection pool: requests, and the port's errors."""

    def __init__(self, api: client.ApiClient, answered: Answered) -> None:
        self._api = api
        self._answered = answered

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Raw | None = None,
        content: str = JSON,
        seconds: float = REQUEST_TIMEOUT,
        fence: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """One request; the decoded answer, of an object that breaks a bound its outline. Raises the port's errors,
        never the client's, and what `fence` raises: it is asked last of all before the request leaves.
        """
        limit = aiohttp.ClientTimeout(total=seconds, connect=min(seconds, CONNECT_TIMEOUT))
        async with self._answer(method, path, query, body, content, limit, fence) as response:
            text = await _read(response, f"{method} {path}")
        return decoded(text, f"{method} {path}", bounds.read)

    async def page(self, path: str, query: Mapping[str, str], accept: str = JSON) -> Page:
        """A page of a list. Raises the port's errors; TooLong where it has more than ANSWER_BYTES."""
        limit = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT, connect=CONNECT_TIMEOUT)
        async with self._answer("GET", path, query, None, JSON, limit, accept=accept) as response:
            return decoded(await _read(response, f"GET {path}"), f"GET {path}", Page.of)

    async def lines(self, path: str, query: Mapping[str, str], silent: float, tell: Callable[[bytes], None]) -> None:
        """A GET, of which each line is passed on as it comes, until the answer ends or is silent for so many seconds.
        Raises the port's errors; Expired at a line of more than ANSWER_BYTES, as a list takes it in.
        """
        limit = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=silent)
        async with self._answer("GET", path, query, None, JSON, limit) as response:
            rest = b""
            with suppress(aiohttp.ServerTimeoutError):
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        tell(line)
                    if len(rest) > bounds.ANSWER_BYTES:
                        raise Expired(0, f"GET {path}: an event of more than {bounds.ANSWER_BYTES} bytes")

    @asynccontextmanager
    async def websocket(
        self, path: str, query: Mapping[str, str], protocol: str, longest: int
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket of one subprotocol, whose messages have at most `longest` bytes; open until the block ends. The
        caller limits the time. Raises the port's errors, also those that reading from the socket raises.
        """
        what = f"GET {path}"
        headers = {"Accept": "*/*"}
        _, url, prepared, *_ = await self._api.param_serialize(
            "GET", path, query_params=list(query.items()), header_params=headers, auth_settings=["BearerToken"]
        )
        rest = self._api.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        began = time.monotonic()
        try:
            async with rest.pool_manager.ws_connect(
                url, headers=prepared, protocols=(protocol,), max_msg_size=longest, proxy=rest.proxy
            ) as socket:
                self._answered("101", "GET", time.monotonic() - began)
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            self._answered(str(error.status), "GET", time.monotonic() - began)
            raise server_error(error.status, what, {"message": error.message}) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(0, f"{what}: {error or type(error).__name__}") from error

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Raw | None,
        content: str,
        limit: aiohttp.ClientTimeout,
        fence: Callable[[], None] = lambda: None,
        accept: str = JSON,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that says yes, still to be read; what goes wrong meanwhile is raised as the port's errors."""
        # without the body, which the client would copy field by field
        prepared = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            # the size of packed content is unknown
            header_params={"Content-Type": content, "Accept": accept, "Accept-Encoding": "identity"},
            auth_settings=["BearerToken"],
        )
        fence()
        answered, began = False, time.monotonic()
        try:
            called = await self._api.call_api(*prepared[:3], body, _request_timeout=limit)
            async with called.response as response:
                text = await _beginning(response) if response.status >= 400 else b""
                self._answered(str(response.status), method, time.monotonic() - began)
                answered = True
                if response.status >= 400:
                    raise server_error(response.status, f"{method} {path}", _said(text))
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if not answered:
                self._answered("<error>", method, time.monotonic() - began)
            late = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
            raise (TimedOut if late else Unavailable if answered else Unreached)(
                0, f"{method} {path}: the API server did not answer: {error or type(error).__name__}"
            ) from error


async def _read(response: aiohttp.ClientResponse, what: str) -> bytes:
    """The text of an answer. Raises TooLong once it has more than ANSWER_BYTES."""
    text = bytearray()
    async for chunk in response.content.iter_any():
        text += chunk
        if len(text) > bounds.ANSWER_BYTES:
            raise TooLong(0, f"{what}: the answer has more than {bounds.ANSWER_BYTES} bytes")
    return bytes(text)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The first ERROR_BYTES of an answer."""
    text = bytearray()
    async for chunk in response.content.iter_any():
        text += chunk
        if len(text) > ERROR_BYTES:
            break
    return bytes(text[:ERROR_BYTES])


def decoded(text: bytes, what: str, reader: Callable[[bytes], D]) -> D:
    try:
        return reader(text)
    except ValueError as error:  # msgspec's own among them
        raise Unavailable(0, f"{what}: what answered is no API server: {text[:80]!r}") from error


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    kind: str = ""
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    """What is read of a Status, and of which type: a webhook, or the server of an APIService, writes what it likes."""

    message: str = ""
    reason: str = ""
    details: _Details | None = None


def _said(text: bytes) -> Raw:
    """The Status in an answer, or one made from other text."""
    try:
        status: Raw = msgspec.json.decode(text, type=dict)
    except (ValueError, RecursionError):
        return {"message": text.decode(errors="replace")[:200]}
    return status


def _as_status(body: Raw) -> _Status:
    try:
        return msgspec.convert(body, _Status)
    except msgspec.ValidationError:
        return _Status(str(body.get("message") or ""))


def server_error(status: int, what: str, body: Raw) -> ApiError:
    """What a Status comes to that answers `what`."""
    answer = _as_status(body)
    message, details = answer.message[:SAID], answer.details or _Details()
    said = f"{message} ({status} to {what})"  # a condition has room for the beginning only
    if status == 409:
        return (AlreadyExists if answer.reason == "AlreadyExists" else Conflict)(status, said)
    if status == 410:
        return Expired(status, said)
    ends = any(cause.reason == _ENDING for cause in details.causes or ())
    if ends or (status == 404 and details.kind == "namespaces"):
        return Terminating(status, said)
    if _UNTYPED in message:
        return ServerRefused(status, said)
    if status == 429 or status >= 500:
        return Unavailable(status, said)
    return ServerRefused(status, said)
