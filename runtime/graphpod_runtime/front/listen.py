"""The two listening sockets, and the servers that run on them.

Sockets are bound and listening before anything heavy is imported: a probe that comes early waits in the kernel's
queue for a moment instead of being refused. So this module imports the standard library only at its top.
"""

import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import uvicorn

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. OSError names host and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(
            f"cannot listen on {host}:{port}: {error.strerror}; give another --host, --http-port or --admin-port"
        ) from error
    bound.setblocking(False)
    return bound


def server(app: Any) -> "uvicorn.Server":
    """A uvicorn server for `app` that leaves signals alone: the front decides what SIGTERM means."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Server(
        uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", server_header=False, ws="none")
    )
