"""HTTP as the sources need it: bounded answers, and redirects that take no credential to another host.

The standard library's client reads a body straight into one large buffer. That is some times faster than clients that
parse each network read in Python, and weights are gigabytes.
"""

import http.client
import ipaddress
import json
import re
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from graphpod_sources.names import shown, size
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores.allowed_hosts import ALL, AllowedHosts
from graphpod_sources.stores.proxies import proxy_for

REDIRECTS = 5
CONNECT = 15.0  # s
READ = 30.0
"""Seconds without a byte after which a request is tried again; less where the stall deadline is shorter."""
DOCUMENT = 32 << 20
"""Most bytes of an answer that is parsed."""
CHUNK = 256 << 10
"""Bytes of one read: it waits until so many are there."""
DRAINED = 64 << 10
"""Most bytes of an unread answer that are read so that its connection can be used again."""
DIGITS = "[0-9]{1,19}"
"""A number of bytes in a header: a file has fewer than that."""
PORTS = {"http": 80, "https": 443}
STATUSES = {
    400: Reason.BadUri,
    401: Reason.Unauthorized,
    403: Reason.Unauthorized,
    404: Reason.NotFound,
    407: Reason.Unreachable,
    408: Reason.Unreachable,
    409: Reason.ChangedUnderUs,
    410: Reason.NotFound,
    412: Reason.ChangedUnderUs,
    416: Reason.ChangedUnderUs,
    429: Reason.RateLimited,
    451: Reason.NotFound,
}
"""Reason of an HTTP status; of one that is not here, ServerError."""
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_PLAIN = re.compile(r"[!-\[\]-~]+")
"""Printable, and no backslash."""
Judge = Callable[["Reply"], Problem]
Origin = tuple[str, str, int]
"""Scheme, host and port."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of an answer. `url` is where it came from after redirects, `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    url: str
    response: http.client.HTTPResponse

    @property
    def where(self) -> str:
        return address(self.url)

    def chunks(self) -> Iterator[memoryview]:
        """The body as it comes; each chunk is valid until the next. Raises `Problem` (Truncated, Stalled)."""
        buffer = memoryview(bytearray(CHUNK))
        while True:
            with transport(self.where):
                count = self.response.readinto(buffer)
            if not count:
                break
            yield buffer[:count]
        if self.response.length:
            raise Problem(Reason.Truncated, f"{self.where}: the connection ended {self.response.length} bytes early")

    def document(self, most: int = DOCUMENT) -> bytes:
        """The body at once. Raises `Problem` (ServerError) for one of more than `most` bytes."""
        body = bytearray()
        for chunk in self.chunks():
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
        found = re.match(rf"bytes ({DIGITS})-", self.headers.get("content-range", ""))
        return int(found[1]) if self.status == 206 and found else None

    def total(self) -> int | None:
        """Bytes of the whole file."""
        if self.status == 206:
            found = re.fullmatch(rf"bytes {DIGITS}-{DIGITS}/({DIGITS})", self.headers.get("content-range", ""))
            return int(found[1]) if found else None
        text = self.headers.get("content-length", "")
        return int(text) if re.fullmatch(DIGITS, text) else None


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
    except (ValueError, TypeError, OverflowError):
        return None


@contextmanager
def transport(where: str) -> Iterator[None]:
    """Failures of a connection as `Problem`s."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise Problem(
            Reason.Unreachable,
            f"{where}: its certificate is not valid here ({error.verify_message})",
            next_step="name the file of its authority in SSL_CERT_FILE",
        ) from error
    except TimeoutError as error:
        raise Problem(Reason.Stalled, f"{where}: nothing came in time") from error
    except (http.client.InvalidURL, UnicodeError) as error:
        raise Problem(Reason.BadUri, f"{where} is no address for HTTP") from error
    except (http.client.HTTPException, ValueError) as error:
        raise Problem(Reason.Truncated, f"{where}: its answer is no whole HTTP ({type(error).__name__})") from error
    except OSError as error:
        raise Problem(Reason.Truncated, f"{where}: the connection ended ({error.strerror or error})") from error


class Http:
    """Connections of one fetch, safe from any thread. Proxies and certificates by the usual variables."""

    def __init__(self, stall_seconds: float, allowed: AllowedHosts = ALL) -> None:
        self._allowed = allowed
        self._connect, self._read = min(CONNECT, stall_seconds), min(READ, stall_seconds)
        self._tls = ssl.create_default_context()  # the system's authorities, or those of SSL_CERT_FILE
        self._idle: dict[Origin, list[http.client.HTTPConnection]] = defaultdict(list)
        self._lock = threading.Lock()

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
            with self._asked(here, sent) as reply:
                location = reply.headers.get("location")
                if reply.status in (301, 302, 303, 307, 308) and location:
                    here = _next(here, location)
                    continue
                if reply.status >= 300 and judge is not None:
                    raise judge(reply)
                yield reply
                return
        raise Problem(Reason.ServerError, f"{address(url)}: redirects more than {REDIRECTS} times")

    @contextmanager
    def _asked(self, url: str, headers: Mapping[str, str]) -> Iterator[Reply]:
        """One request. Its connection is used again when the answer was read to its end."""
        key, connection = origin(url), None
        try:
            connection, response = self._sent(url, key, headers)
            named = {name.lower(): text for name, text in response.getheaders()}
            yield Reply(response.status, named, url, response)
            with transport(address(url)):
                if response.length is not None and response.length <= DRAINED:
                    response.read()
            if response.isclosed() and connection.sock is not None:
                with self._lock:
                    self._idle[key].append(connection)
                connection = None
        finally:
            if connection is not None:
                connection.close()

    def _sent(
        self, url: str, key: Origin, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A connection with the head of its answer. One that was idle may have ended meanwhile: then a new one."""
        with self._lock:
            idle = self._idle[key].pop() if self._idle[key] else None
        if idle is not None:
            try:
                return idle, self._request(idle, url, headers)
            except (http.client.HTTPException, OSError):
                idle.close()
        connection = self._connection(key)
        try:
            with transport(address(url)):
                try:
                    connection.connect()
                except ssl.SSLCertVerificationError:
                    raise
                except (OSError, http.client.HTTPException) as error:
                    why = str(error) or "no answer in time"
                    raise Problem(Reason.Unreachable, f"{address(url)} cannot be reached ({why})") from error
                if connection.sock is not None:
                    connection.sock.settimeout(self._read)
                return connection, self._request(connection, url, headers)
        except BaseException:
            connection.close()
            raise

    def _request(
        self, connection: http.client.HTTPConnection, url: str, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        target = quote(parts.path or "/", safe="/%:=&;+$,@!~*'()[]") + (
            f"?{_query(parts.query)}" if parts.query else ""
        )
        sent = {"User-Agent": "graphpod-fetch", "Accept-Encoding": "identity", **headers}
        if parts.scheme == "http" and (proxy := proxy_for(parts.scheme, parts.hostname or "")):
            target = f"http://{parts.netloc.rpartition('@')[2]}{target}"
            sent |= proxy.headers
        connection.request("GET", target, headers=sent)
        return connection.getresponse()

    def _connection(self, key: Origin) -> http.client.HTTPConnection:
        scheme, host, port = key
        self._allowed.check(host, port)
        proxy = proxy_for(scheme, host)
        if proxy is not None:
            self._allowed.check(proxy.host, proxy.port)
        to, at = (proxy.host, proxy.port) if proxy else (host, port)
        if scheme == "http":
            return http.client.HTTPConnection(to, at, timeout=self._connect)
        connection = http.client.HTTPSConnection(to, at, timeout=self._connect, context=self._tls)
        if proxy:
            connection.set_tunnel(host, port, headers=proxy.headers)
        return connection


def origin(url: str) -> Origin:
    """Scheme, host and port. Raises `Problem` (BadUri)."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as error:
        raise Problem(Reason.BadUri, f"{shown(address(url))} is no address ({error})") from error
    # Clients differ in where a host ends, at a backslash for one: the host that is judged must be the one that is met.
    if scheme not in PORTS or not host or not _HOST.fullmatch(host) or not _PLAIN.fullmatch(parts.netloc):
        raise Problem(Reason.BadUri, f"{shown(address(url))} is no address of HTTP")
    return scheme, host, port or PORTS[scheme]


def _query(text: str) -> str:
    """A query as it came, but for what may not be in a request line."""
    return quote(text, safe="/%:=&;+$,@!~*'()[]?")


def _next(here: str, location: str) -> str:
    """Where a redirect leads. Raises `Problem` (BadUri) for what is no HTTP, or HTTP after HTTPS."""
    try:
        there = urljoin(here, location)
        scheme = urlsplit(there).scheme
    except ValueError:
        there, scheme = location, ""
    if scheme not in PORTS or (urlsplit(here).scheme == "https" and scheme != "https"):
        raise Problem(
            Reason.BadUri, f"{address(here)}: redirects to {shown(address(there))}, and only https:// is followed"
        )
    host = origin(there)[1]
    if host != origin(here)[1] and _of_the_node(host):
        raise Problem(Reason.BadUri, f"{address(here)}: redirects to {host}, where a node keeps its own metadata")
    return there


def _of_the_node(host: str) -> bool:
    """Whether an address is link-local: clouds answer there with the node's credentials."""
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False
