"""Which network interface leads to another machine."""

import fcntl
import socket
import struct
import time
from pathlib import Path

_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR
_NAME_BYTES = 15
_IPV6 = Path("/proc/net/if_inet6")


AGAIN_SECONDS = 1.0


def interface_to(host: str, port: int, patience: float = 60.0) -> str:
    """The name of the interface whose address this machine has for connections to `host`; "" if it is not known: then
    libraries choose. OSError for a host to which nothing leads for `patience` seconds: one server of names may know of
    a new machine while another does not."""
    until = time.monotonic() + patience
    while True:
        try:
            return _interface_to(host, port)
        except OSError:
            if time.monotonic() >= until:
                raise
        time.sleep(AGAIN_SECONDS)


def _interface_to(host: str, port: int) -> str:
    family, own = _own_address(host, port)
    names = [name for _, name in socket.if_nameindex()]
    if family == socket.AF_INET6:
        wanted = socket.inet_pton(socket.AF_INET6, own.partition("%")[0]).hex()
        rows = _IPV6.read_text().splitlines() if _IPV6.exists() else []
        return next((row.split()[-1] for row in rows if row.startswith(wanted)), "")
    return next((name for name in names if _ipv4(name) == own), "")


def _own_address(host: str, port: int) -> tuple[int, str]:
    """Of the first address of `host` that a way leads to: its family, and this end's address."""
    missing: OSError | None = None
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # sends nothing
                return family, probe.getsockname()[0]
        except OSError as error:
            missing = missing or error
    assert missing is not None, "getaddrinfo gives one address or more"
    raise missing


def _ipv4(name: str) -> str:
    """The address of an interface; "" for one without."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            found = fcntl.ioctl(any_socket, _ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()[:_NAME_BYTES]))
        except OSError:
            return ""
    return socket.inet_ntoa(found[20:24])
