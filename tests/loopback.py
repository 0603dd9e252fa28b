"""Sockets as a machine with and without IPv6 gives them, for tests that open real ones."""

import socket

import pytest

LOOPBACKS = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]


def answers(family: socket.AddressFamily, host: str, port: int) -> bool:
    with socket.socket(family) as client:
        return client.connect_ex((host, port)) == 0


def switch_off_ipv6(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """From now on a new IPv6 socket fails with this errno, as on a kernel that has no IPv6."""

    class Socket(socket.socket):
        def __init__(self, family: int = -1, *args: int, **kwargs: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(number, "Address family not supported by protocol")
            super().__init__(family, *args, **kwargs)

    monkeypatch.setattr(socket, "socket", Socket)
