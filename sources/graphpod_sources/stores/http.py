"""HTTP as the sources need it: bounded answers, and redirects that take no credential to another host."""

import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from graphpod_sources.names import shown, size
from graphpod_sources.problem import Problem, Reason

REDIRECTS = 5
CONNECT = 15.0  # s
READ = 30.0
"""Seconds without a byte after which a request is tried again; less where the stall deadline is shorter."""
DOCUMENT = 32 << 20
"""Most bytes of an answer that is parsed."""
CHUNK = 1 << 20
STATUSES = {
    400: Reason.BadUri,
    401: Reason.Unauthorized,
    403: Reason.Unauthorized,
    404: Reason.NotFound,
    408: Reason.Unreachable,
    409: Reason.ChangedUnderUs,
    410: Reason.NotFound,
    412: Reason.ChangedUnderUs,
    416: Reason.ChangedUnderUs,
    429: Reason.RateLimited,
    451: Reason.NotFound,
}
"""Reason of an HTTP status; of one that is not here, ServerError."""
Judge = Callable[["Reply"], Problem]


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of an answer. `url` is where it came from after redirects, `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    url: str
    response: httpx2.Response

    @property
    def where(self) -> str:
        return address(self.url)

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes. Raises `Problem` (Truncated, Stalled) when it ends early."""
        with transport(self.where):
            yield from self.response.iter_raw(CHUNK)

    def document(self, most: int = DOCUMENT) -> bytes:
        """The body at once. Raises `Problem` (ServerError) for one of more than `most` bytes."""
        body = bytearray()
        with transport(self.where):
            for chunk in self.response.iter_bytes(CHUNK):
                body += chunk
                if len(body) > most:
                    raise Problem(Reason.ServerError, f"{self.where}: answers with more than {size(most)} of text")
        return bytes(body)

    def json(self, most: int = DOCUMENT) -> Any:
        """The body as JSON. Raises `Problem` (ServerError) when it is none."""
        body = self.document(most)
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Problem(Reason.ServerError, f"{self.where}: its answer is no JSON ({error})") from error

    def range_start(self) -> int | None:
        """First byte of a partial answer; None for a whole one."""
        found = re.match(r"bytes (\d+)-", self.headers.get("content-range", ""))
        return int(found[1]) if self.status == 206 and found else None

    def total(self) -> int | None:
        """Bytes of the whole file."""
        if self.status == 206:
            found = re.fullmatch(r"bytes \d+-\d+/(\d+)", self.headers.get("content-range", ""))
            return int(found[1]) if found else None
        text = self.headers.get("content-length", "")
        return int(text) if text.isdecimal() and len(text) < 20 else None


def address(url: str) -> str:
    """An address for messages, without its query: that may hold a signature."""
    return url.partition("?")[0].partition("#")[0][:300]


def refusal(reply: Reply) -> Problem:
    """What a status of 400 and more means where the source says nothing better."""
    reason = STATUSES.get(reply.status, Reason.ServerError)
    return Problem(reason, f"{reply.where} answers {reply.status}", retry_after=retry_after(reply.headers))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or a date."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text[:9])
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


@contextmanager
def transport(where: str) -> Iterator[None]:
    """Failures of a connection as `Problem`s."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError) as error:
        step = "name the file of its authority in SSL_CERT_FILE" if "CERTIFICATE" in str(error) else None
        what = f"{where} cannot be reached ({error or type(error).__name__})"
        raise Problem(Reason.Unreachable, what, next_step=step) from error
    except httpx2.TimeoutException as error:
        raise Problem(Reason.Stalled, f"{where}: nothing came ({type(error).__name__})") from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise Problem(Reason.BadUri, f"{where} is no address for HTTP ({error})") from error
    except httpx2.DecodingError as error:
        raise Problem(Reason.ServerError, f"{where}: its answer cannot be decoded") from error
    except httpx2.TransportError as error:
        raise Problem(
            Reason.Truncated, f"{where}: the connection ended early ({error or type(error).__name__})"
        ) from error


class Http:
    """One client for a fetch, safe from any thread. Proxies and certificates by the usual variables."""

    def __init__(self, stall_seconds: float, connections: int = 16) -> None:
        read = min(READ, stall_seconds)
        self._client = httpx2.Client(
            verify=ssl.create_default_context(),  # the system's authorities, or those of SSL_CERT_FILE
            timeout=httpx2.Timeout(connect=min(CONNECT, stall_seconds), read=read, write=read, pool=None),
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
            headers={"User-Agent": "graphpod-fetch", "Accept-Encoding": "identity"},
            follow_redirects=False,
        )

    @contextmanager
    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        secret: Mapping[str, str] | None = None,
        judge: Judge | None = refusal,
    ) -> Iterator[Reply]:
        """Follow redirects to an answer. `secret` headers go to the host of `url` alone, `headers` everywhere.

        A status of 400 and more raises what `judge` makes of it; without a judge it is an answer as any other.
        """
        first, here = origin(url), url
        for _ in range(REDIRECTS + 1):
            sent = {**(headers or {}), **((secret or {}) if origin(here) == first else {})}
            with transport(address(here)):
                request = self._client.build_request("GET", here, headers=sent)
                response = self._client.send(request, stream=True)
            try:
                reply = Reply(
                    response.status_code,
                    {name.lower(): text for name, text in response.headers.items()},
                    here,
                    response,
                )
                location = reply.headers.get("location")
                if reply.status in (301, 302, 303, 307, 308) and location:
                    here = _next(here, location)
                    continue
                if reply.status >= 300 and judge is not None:
                    raise judge(reply)
                yield reply
                return
            finally:
                response.close()
        raise Problem(Reason.ServerError, f"{address(url)}: redirects more than {REDIRECTS} times")

    def close(self) -> None:
        self._client.close()


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port. Raises `Problem` (BadUri)."""
    with transport(address(url)):
        parts = httpx2.URL(url)
    return parts.scheme, parts.host, parts.port


def _next(here: str, location: str) -> str:
    """Where a redirect leads. Raises `Problem` (ServerError) for what is no HTTP, or HTTP after HTTPS."""
    with transport(address(here)):
        there = str(httpx2.URL(here).join(location))
    to, since = origin(there)[0], origin(here)[0]
    if to not in ("http", "https") or (since == "https" and to != "https"):
        raise Problem(
            Reason.BadUri, f"{address(here)}: redirects to {shown(address(there))}, and only https:// is followed"
        )
    return there
