"""The operator's sockets, opened for real: one for IPv4 and IPv6, or IPv4 alone."""

import errno
import socket
from collections.abc import Callable
from contextlib import closing

import pytest

from graphpod_operator.manager import sockets
from graphpod_operator.manager.sockets import listen

LOOPBACKS = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]


def answers(family: socket.AddressFamily, host: str, port: int) -> bool:
    with socket.socket(family) as client:
        return client.connect_ex((host, port)) == 0


@pytest.fixture
def without_ipv6(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A kernel that has no IPv6, with the answer that it then gives to a new socket."""

    class Socket(socket.socket):
        def __init__(self, family: int = -1, *args: int, **kwargs: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(answer[0], "Address family not supported by protocol")
            super().__init__(family, *args, **kwargs)

    answer = [errno.EAFNOSUPPORT]

    def switch_off(number: int) -> None:
        answer[0] = number
        monkeypatch.setattr(sockets.socket, "socket", Socket)

    return switch_off


def test_one_socket_answers_over_ipv4_and_ipv6() -> None:
    with closing(listen(0)) as bound:
        port = bound.getsockname()[1]
        assert [answers(family, host, port) for family, host in LOOPBACKS] == [True, True]


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_kernel_without_ipv6_gets_an_ipv4_socket(without_ipv6: Callable[[int], None], number: int) -> None:
    without_ipv6(number)
    with closing(listen(0)) as bound:
        assert bound.getsockname()[0] == "0.0.0.0"
        assert answers(socket.AF_INET, "127.0.0.1", bound.getsockname()[1])


def test_another_failure_of_ipv6_is_no_reason_to_do_without(without_ipv6: Callable[[int], None]) -> None:
    without_ipv6(errno.EMFILE)
    with pytest.raises(OSError, match="not supported") as told:
        listen(0)
    assert told.value.errno == errno.EMFILE


def test_a_taken_port_is_named() -> None:
    with closing(listen(0)) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on .*{port}: Address already in use") as told:
            listen(port)
        assert told.value.errno == errno.EADDRINUSE
