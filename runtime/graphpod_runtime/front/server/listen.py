"""The two listening sockets, and the servers that run on them.

Sockets are bound and listening before anything heavy is imported: a probe that comes early waits in the kernel's
queue for a moment instead of being refused. So this module imports the standard library and the policy's words only
at its top.
"""

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from graphpod_policy.http_limits import DEFAULT_LIMITS, HttpLimits

if TYPE_CHECKING:
    import uvicorn

    from graphpod_runtime.front.access.tls import Certificate

BACKLOG = 2048
EVERY_IPV4, EVERY_IPV6 = "0.0.0.0", "::"
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
"""What the kernel answers where IPv6 is switched off."""


def listen(host: str | None, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. Without a host, on every address of this machine: IPv4 and IPv6,
    or IPv4 alone where the kernel has no IPv6. OSError names host and port.
    """
    if host is not None:
        return _listen(host, port)
    try:
        return _listen(EVERY_IPV6, port)
    except OSError as error:
        if error.errno not in NO_IPV6:
            raise
    return _listen(EVERY_IPV4, port)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == EVERY_IPV6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # whatever the node's bindv6only says
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        options = "--host, --http-port or --admin-port"
        what = f"cannot listen on {address(host, port)}: {error.strerror}; give another {options}"
        raise OSError(error.errno, what) from error
    bound.setblocking(False)
    return bound


def address(host: str, port: int) -> str:
    """Host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def server(app: Any, certificate: "Certificate | None" = None, limits: HttpLimits = DEFAULT_LIMITS) -> "uvicorn.Server":
    """A uvicorn server for `app` that leaves signals alone: the front decides what SIGTERM means. HTTPS with a
    `certificate`.
    """
    import asyncio

    import uvicorn

    from graphpod_runtime.front.access.tls import HANDSHAKE_SECONDS
    from graphpod_runtime.front.server.connection import Connection

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    class Limited(Connection):
        LIMITS = limits

    config = uvicorn.Config(
        app, http=Limited, log_config=None, access_log=False, lifespan="off", server_header=False, ws="none"
    )
    if certificate is None:
        return Server(config)
    context = certificate.context

    class TlsServer(Server):
        """Its own sockets, as uvicorn has no limit on the time of a handshake."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=[])

            def connection() -> asyncio.Protocol:
                return Limited(config, self.server_state, self.lifespan.state)

            for bound in sockets or ():
                self.servers.append(
                    await asyncio.get_running_loop().create_server(
                        connection, sock=bound, ssl=context, backlog=BACKLOG, ssl_handshake_timeout=HANDSHAKE_SECONDS
                    )
                )

    return TlsServer(config)
