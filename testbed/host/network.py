"""The wires: one namespace for the control plane, one for each node, three routes on the host.

host ──veth── control plane ──bridge── node 1, node 2, …   The host reaches the API server, pods and services by routes
through the control plane's namespace, so its own `ip_forward` is never touched.
"""

import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network

from testbed.command import run
from testbed.errors import TestbedError

IDS = range(1, 99)  # a testbed's number shapes its addresses: 10.199.ID, 10.200.ID, 10.(100+ID)
NODE_LIMIT = 64  # nodes 10.200.ID.11 to .74; pods of node i are 10.(100+ID).i.0/24, services start at .128


FORWARDING = ("/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding")


def netns(name: str, node: int = 0) -> str:
    """The namespace of the control plane (0) or of a node (1…). A dot, which names cannot hold, keeps them apart."""
    return f"graphpod-{name}.{node}" if node else f"graphpod-{name}"


class Family(StrEnum):
    """What a testbed's machines, pods and services have addresses of; never both."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"


@dataclass(frozen=True)
class Addresses:
    """Every address of testbed number `id`."""

    id: int
    family: Family = Family.IPV4

    def _of(self, ipv4: str, ipv6: str) -> str:
        """`ipv6` behind the testbed's own 48 bits."""
        return ipv4 if self.family is Family.IPV4 else f"fd67:6772:{self.id:x}:{ipv6}"

    @property
    def host(self) -> str:
        return self._of(f"10.199.{self.id}.1", "1::1")

    @property
    def gate(self) -> str:
        """The control plane's end of the wire to the host."""
        return self._of(f"10.199.{self.id}.2", "1::2")

    @property
    def wire_bits(self) -> int:
        """Length of the prefix of `host` and `gate`."""
        return 30 if self.family is Family.IPV4 else 64

    @property
    def api(self) -> str:
        """API server and cluster DNS; the nodes' default gateway."""
        return self._of(f"10.200.{self.id}.1", "2::1")

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{in_url(self.api)}:6443"

    def node(self, i: int) -> str:
        return self._of(f"10.200.{self.id}.{10 + i}", f"2::{10 + i:x}")

    @property
    def nodes(self) -> str:
        return self._of(f"10.200.{self.id}.0/24", "2::/64")

    @property
    def node_bits(self) -> int:
        """Length of the prefix of `api` and `node`."""
        return 24 if self.family is Family.IPV4 else 64

    @property
    def cluster(self) -> str:
        """Pods and services together: one route on the host."""
        return self._of(f"10.{100 + self.id}.0.0/16", "8000::/49")

    def pods(self, i: int) -> str:
        return self._of(f"10.{100 + self.id}.{i}.0/24", f"{0x8000 + i:x}::/64")

    def pod_gateway(self, i: int) -> str:
        return self._of(f"10.{100 + self.id}.{i}.1", f"{0x8000 + i:x}::1")

    @property
    def everywhere(self) -> str:
        """The network of every address."""
        return "0.0.0.0/0" if self.family is Family.IPV4 else "::/0"

    @property
    def services(self) -> str:
        """The cluster's upper half: 32 thousand Services, as many as simulated pods; of IPv6 the most that there may
        be, a million.
        """
        return self._of(f"10.{100 + self.id}.128.0/17", "ffff::/108")

    @property
    def kubernetes(self) -> str:
        """The `kubernetes` Service, by which pods reach the API server."""
        return self._of(f"10.{100 + self.id}.128.1", "ffff::1")

    @property
    def dns(self) -> str:
        return self._of(f"10.{100 + self.id}.128.10", "ffff::a")

    @property
    def networks(self) -> tuple[IPv4Network, ...]:
        """What the number takes of IPv4, also where the testbed does not use it: other testbeds may."""
        same = Addresses(self.id)
        return tuple(IPv4Network(n) for n in (f"10.199.{self.id}.0/30", same.nodes, same.cluster))


def in_url(address: str) -> str:
    """As a URL has it: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


def free_id(taken: Iterable[IPv4Network], used: Iterable[int]) -> int:
    """The smallest testbed number that is free and whose networks touch no `taken` one (the host's routes)."""
    routes, numbers = list(taken), set(used)
    for n in IDS:
        clash = any(mine.overlaps(route) for mine in Addresses(n).networks for route in routes)
        if n not in numbers and not clash:
            return n
    raise TestbedError(
        "no address range is free: each testbed needs 10.199.N.0/30, 10.200.N.0/24 "
        "and 10.(100+N).0.0/16 with N in 1…98.\n"
        f"The host has routes to {', '.join(map(str, routes)) or 'none'}; testbeds in use: {sorted(numbers)}.\n"
        "Take a testbed down (`python3 -m testbed status` lists them) or remove a route (`ip route`)."
    )


def host_networks(ip_route_json: str) -> list[IPv4Network]:
    """What `ip -j -4 route show table all` leads anywhere, the host's own addresses included; not the default route."""
    found = []
    for route in json.loads(ip_route_json or "[]"):
        if route["dst"] != "default" and route.get("type") != "multicast":
            network = ipaddress.ip_network(route["dst"], strict=False)
            if isinstance(network, IPv4Network):
                found.append(network)
    return found


def read_host_networks() -> list[IPv4Network]:
    return host_networks(run(["ip", "-j", "-4", "route", "show", "table", "all"]))


def existing(name: str) -> list[str]:
    """Namespaces of this testbed that exist now, by name."""
    lines = run(["ip", "netns", "list"]).splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    return [n for n in names if n == netns(name) or n.startswith(netns(name) + ".")]


def raise_up(name: str, addresses: Addresses, nodes: int) -> None:
    """Lays every wire. Level `api` is the same with no nodes."""
    control, wire = netns(name), f"gp-h{addresses.id}"
    # without `nodad` an IPv6 address cannot be listened on for its first second
    at_once = "" if addresses.family is Family.IPV4 else " nodad"
    run(["ip", "netns", "add", control])
    _batch(
        None,
        f"link add {wire} type veth peer name host0 netns {control}",
        f"addr add {addresses.host}/{addresses.wire_bits} dev {wire}{at_once}",
        f"link set {wire} up",
    )
    _batch(
        control,
        "link set lo up",
        f"addr add {addresses.gate}/{addresses.wire_bits} dev host0{at_once}",
        "link set host0 up",
        f"route add default via {addresses.host}",
        "link add br0 type bridge",
        f"addr add {addresses.api}/{addresses.node_bits} dev br0{at_once}",
        "link set br0 up",
    )
    _forward(control)
    _batch(
        None, f"route add {addresses.nodes} via {addresses.gate}", f"route add {addresses.cluster} via {addresses.gate}"
    )
    for i in range(1, nodes + 1):
        node = netns(name, i)
        run(["ip", "netns", "add", node])
        _batch(control, f"link add v{i} type veth peer name eth0 netns {node}", f"link set v{i} master br0 up")
        _batch(
            node,
            "link set lo up",
            f"addr add {addresses.node(i)}/{addresses.node_bits} dev eth0{at_once}",
            "link set eth0 up",
            f"route add default via {addresses.api}",
        )
        _forward(node)
        _batch(control, f"route add {addresses.pods(i)} via {addresses.node(i)}")


def cut(id: int) -> None:
    """Removes the wire to the host at once; deleting its namespace would do so only some moments later."""
    wire = f"gp-h{id}"
    if any(link["ifname"] == wire for link in json.loads(run(["ip", "-j", "link"]))):
        run(["ip", "link", "delete", wire])


def tear_down(name: str) -> None:
    """Removes the namespaces; the wires and the host's routes over them go with their ends."""
    for namespace in existing(name):
        run(["ip", "netns", "delete", namespace])


def _batch(namespace: str | None, *lines: str) -> None:
    where = ["-n", namespace] if namespace else []
    run(
        ["ip", *where, "-batch", "-"],
        input="\n".join(lines) + "\n",
        remedy="an address, route or interface of that name may be taken: `ip addr; ip route` show by whom",
    )


def _forward(namespace: str) -> None:
    run(["ip", "netns", "exec", namespace, "sh", "-c", f"echo 1 | tee {' '.join(FORWARDING)}"])
