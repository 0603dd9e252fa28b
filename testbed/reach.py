"""Whether an address takes connections."""

import socket
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}
LIMIT = 3.0  # s


def takes_connections(url: str) -> bool:
    """Whether somebody listens there. A Service refuses until the proxies know of its pods, which may be after they are
    Ready.
    """
    where = urlsplit(url)
    try:
        with socket.create_connection((where.hostname or "", where.port or PORTS[where.scheme]), timeout=LIMIT):
            return True
    except OSError:
        return False
