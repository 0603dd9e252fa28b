import json
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from itertools import combinations

import pytest

from testbed.errors import TestbedError
from testbed.host.network import IDS, Addresses, Family, free_id, host_networks, netns
from testbed.name import check_name


def test_no_two_testbeds_share_an_address():
    everyone = [network for n in IDS for network in Addresses(n).networks]
    assert not any(a.overlaps(b) for a, b in combinations(everyone, 2))


def test_pods_and_services_lie_within_the_one_route_of_the_host_and_apart_from_each_other():
    a = Addresses(7)
    inside = [IPv4Network(n) for n in (a.pods(1), a.pods(64), a.services)]
    assert all(n.subnet_of(IPv4Network(a.cluster)) for n in inside)
    assert not any(x.overlaps(y) for x, y in combinations(inside, 2))
    assert IPv4Network(a.services).num_addresses > 6000, "the benchmark of many services makes 5000 Services"


def test_the_addresses_of_an_ipv6_testbed_are_its_own_and_apart():
    a, other = Addresses(7, Family.IPV6), Addresses(8, Family.IPV6)
    cluster = IPv6Network(a.cluster)
    inside = [IPv6Network(n) for n in (a.pods(1), a.pods(64), a.services)]
    assert all(n.subnet_of(cluster) for n in inside)
    apart = [*inside, IPv6Network(a.nodes), IPv6Network(f"{a.host}/{a.wire_bits}", strict=False)]
    assert not any(x.overlaps(y) for x, y in combinations(apart, 2))
    assert not cluster.overlaps(IPv6Network(other.cluster))
    assert {IPv6Address(one) in IPv6Network(a.services) for one in (a.kubernetes, a.dns)} == {True}
    assert {IPv6Address(one) in IPv6Network(a.nodes) for one in (a.api, a.node(1), a.node(64))} == {True}
    assert IPv6Address(a.pod_gateway(3)) in IPv6Network(a.pods(3))
    assert IPv6Network(a.services).prefixlen >= 108, "an API server takes no more"
    assert a.networks == Addresses(7).networks, "its number is taken for both"


@pytest.mark.parametrize(
    ("family", "server"),
    [(Family.IPV4, "https://10.200.7.1:6443"), (Family.IPV6, "https://[fd67:6772:7:2::1]:6443")],
)
def test_an_ipv6_address_stands_in_brackets_in_a_url(family: Family, server: str):
    assert Addresses(7, family).server == server


def test_the_number_taken_is_the_first_that_is_neither_in_use_nor_routed_elsewhere():
    assert free_id([], []) == 1
    assert free_id([], [1, 2, 4]) == 3
    assert free_id([IPv4Network("10.200.0.0/23"), IPv4Network("10.102.3.0/24")], []) == 3


def test_a_host_that_routes_all_of_10_is_told_which_routes_are_in_the_way():
    with pytest.raises(TestbedError, match=r"routes to 10\.0\.0\.0/8"):
        free_id([IPv4Network("10.0.0.0/8")], [])


def test_every_route_but_the_default_one_is_in_the_way_the_host_s_own_addresses_too():
    routes = [
        {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
        {"dst": "192.0.2.0/24", "dev": "eth0"},
        {"dst": "10.8.0.1", "dev": "tun0"},
        {"type": "local", "dst": "10.200.1.5", "dev": "lo"},
        {"type": "blackhole", "dst": "10.101.0.0/16"},
    ]
    found = host_networks(json.dumps(routes))
    assert [str(n) for n in found] == ["192.0.2.0/24", "10.8.0.1/32", "10.200.1.5/32", "10.101.0.0/16"]
    assert free_id(found, []) == 2


def test_a_node_of_one_testbed_is_never_the_control_plane_of_another():
    assert netns("demo", 1) == "graphpod-demo.1"
    with pytest.raises(TestbedError, match="letters, digits"):
        check_name("demo.1")


@pytest.mark.parametrize("name", ["", "Demo", "1st", "a--b", "a-", "a/b", "locks", "x" * 25])
def test_names_that_would_not_fit_into_paths_and_namespaces_are_refused(name):
    with pytest.raises(TestbedError, match="testbed name"):
        check_name(name)
