"""The engine's sockets, opened for real: one for IPv4 and IPv6, IPv4 alone, or the address asked for."""

import errno
import socket
from contextlib import closing

import pytest

from graphpod_runtime.front.server.listen import address, listen
from tests.loopback import LOOPBACKS, answers, switch_off_ipv6


def test_one_socket_answers_over_ipv4_and_ipv6() -> None:
    with closing(listen(None, 0)) as bound:
        port = bound.getsockname()[1]
        assert [answers(family, host, port) for family, host in LOOPBACKS] == [True, True]


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_kernel_without_ipv6_gets_an_ipv4_socket(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    switch_off_ipv6(monkeypatch, number)
    with closing(listen(None, 0)) as bound:
        assert bound.getsockname()[0] == "0.0.0.0"
        assert answers(socket.AF_INET, "127.0.0.1", bound.getsockname()[1])


def test_another_failure_of_ipv6_is_no_reason_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    switch_off_ipv6(monkeypatch, errno.EMFILE)
    with pytest.raises(OSError, match="not supported") as told:
        listen(None, 0)
    assert told.value.errno == errno.EMFILE


def test_a_taken_port_is_named() -> None:
    with closing(listen(None, 0)) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on .*{port}: Address already in use") as told:
            listen(None, port)
        assert told.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize(
    ("host", "wanted"), [("127.0.0.1", [True, False]), ("::1", [False, True]), ("::", [True, True])]
)
def test_a_host_that_is_named_is_the_only_one(host: str, wanted: list[bool]) -> None:
    with closing(listen(host, 0)) as bound:
        port = bound.getsockname()[1]
        assert [answers(family, loopback, port) for family, loopback in LOOPBACKS] == wanted


def test_an_address_is_written_as_in_a_url() -> None:
    assert (address("::", 8000), address("10.0.0.1", 8001)) == ("[::]:8000", "10.0.0.1:8001")
