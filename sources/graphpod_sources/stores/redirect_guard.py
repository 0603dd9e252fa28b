"""Keeps the library of object stores at the endpoint's host.

The library follows redirects by itself, and takes a session token to any host. It has no setting for that, but it has
one for a proxy. So everything that does not go to the endpoint's host, or to a host where a role logs in, is sent to
this proxy on the loopback address, which refuses it. What does go there takes no detour: the library excludes these
hosts from its proxy. Where they have a proxy of their own, bytes pass through here to that one.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import weakref
from collections.abc import Sequence
from urllib.parse import urlsplit

from graphpod_sources.stores.http_client import CONNECT, origin
from graphpod_sources.stores.proxies import Proxy, proxy_for

LARGEST_HEAD = 64 << 10  # bytes
BLOCK = 256 << 10  # bytes
REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class RedirectGuard:
    """The proxy that the library is given. It lives as long as this object."""

    def __init__(self, urls: Sequence[str]) -> None:
        """`urls` are those that may be connected to; the first is the endpoint."""
        hosts = {host.lower(): proxy_for(scheme, host) for scheme, host, _ in map(origin, urls)}
        self._direct = [host for host, proxy in hosts.items() if proxy is None]
        self._own = hosts[origin(urls[0])[1].lower()]
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.through = {host: proxy for host, proxy in hosts.items() if proxy is not None}
        threading.Thread(target=self._server.serve_forever, name="redirect-guard", daemon=True).start()
        weakref.finalize(self, _closed, self._server)

    @property
    def options(self) -> dict[str, str]:
        """Those of the library's client."""
        user = f"{self._own.credentials}@" if self._own is not None and self._own.credentials else ""
        return {
            "proxy_url": f"http://{user}127.0.0.1:{self._server.server_address[1]}",
            "proxy_excludes": ",".join(self._direct),
        }

    @property
    def refused(self) -> str | None:
        """The last host that a redirect led to and was not connected to."""
        return self._server.refused


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    through: dict[str, Proxy]
    refused: str | None = None

    def proxy_of(self, host: str) -> Proxy | None:
        """The proxy through which a host, or one below it, may be reached."""
        return next((proxy for name, proxy in self.through.items() if host == name or host.endswith(f".{name}")), None)


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        """One connection, whose requests all go to the same host: the library keeps one for each."""
        self.request.settimeout(CONNECT)
        with contextlib.suppress(OSError, ValueError):
            head = self._head()
            method, target = head.split(b" ", 2)[:2]
            address = f"//{target.decode()}" if method == b"CONNECT" else target.decode()
            host = (urlsplit(address).hostname or "").lower()
            if (proxy := self.server.proxy_of(host)) is None:
                self.server.refused = host[:253]
                self.request.sendall(REFUSAL)
                return
            with socket.create_connection((proxy.host, proxy.port), CONNECT) as there:
                there.sendall(head)
                for one in (there, self.request):
                    one.settimeout(None)
                back = threading.Thread(target=_pass, args=(there, self.request), daemon=True)
                back.start()
                _pass(self.request, there)
                back.join()

    def _head(self) -> bytes:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (more := self.request.recv(LARGEST_HEAD)) or len(head) > LARGEST_HEAD:
                raise ValueError("no request")
            head += more
        return head


def _pass(here: socket.socket, there: socket.socket) -> None:
    """All bytes of one direction, then its end."""
    buffer = memoryview(bytearray(BLOCK))
    with contextlib.suppress(OSError):
        while count := here.recv_into(buffer):
            there.sendall(buffer[:count])
    for one in (here, there):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _closed(server: _Server) -> None:
    threading.Thread(target=server.shutdown, daemon=True).start()
    server.server_close()
