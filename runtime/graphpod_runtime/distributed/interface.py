"""Which network interface leads to another machine."""

import fcntl
import socket
import struct
from pathlib import Path

_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR
_NAME_BYTES = 15
_IPV6 = Path("/proc/net/if_inet6")


def interface_to(host: str, port: int) -> str:
    """The name of the interface whose address this machine has for connections to `host`; "" if it is not known: then
    libraries choose. OSError for a host that has no address."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        own = probe.getsockname()[0]
    names = [name for _, name in socket.if_nameindex()]
    if family == socket.AF_INET6:
        wanted = socket.inet_pton(socket.AF_INET6, own.partition("%")[0]).hex()
        rows = _IPV6.read_text().splitlines() if _IPV6.exists() else []
        return next((row.split()[-1] for row in rows if row.startswith(wanted)), "")
    return next((name for name in names if _ipv4(name) == own), "")


def _ipv4(name: str) -> str:
    """The address of an interface; "" for one without."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            found = fcntl.ioctl(any_socket, _ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()[:_NAME_BYTES]))
        except OSError:
            return ""
    return socket.inet_ntoa(found[20:24])
