"""Dual-stack listening sockets: IPv4 and IPv6 on one port, so that it works in clusters with either or both."""

from __future__ import annotations

import errno
import socket

BACKLOG = 128
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
"""What the kernel answers where IPv6 is switched off."""


def listen(port: int) -> socket.socket:
    """A listening TCP socket on every address of this machine, or on every IPv4 address where the kernel has no IPv6;
    port 0 takes a free one. Raises OSError where the port is taken.
    """
    try:
        return _listen(socket.AF_INET6, "::", port)
    except OSError as error:
        if error.errno not in NO_IPV6:
            raise
    return _listen(socket.AF_INET, "0.0.0.0", port)


def _listen(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # whatever the node's bindv6only says
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen on port {port}: {error.strerror}") from error
    bound.setblocking(False)
    return bound
