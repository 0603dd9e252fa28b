"""NetworkPolicies as nft rules: who is let in by namespace and labels, and nobody by mistake."""

import pytest

from testbed.errors import TestbedError
from testbed.nodes import policy

PLACES = {"home": {"kubernetes.io/metadata.name": "home"}, "system": {"kubernetes.io/metadata.name": "system"}}


def pod(name: str, place: str, ip: str, **labels: str) -> dict:
    ports = [{"name": "admin", "containerPort": 8001}]
    return {
        "metadata": {"name": name, "namespace": place, "labels": labels},
        "spec": {"containers": [{"ports": ports}]},
        "status": {"podIP": ip},
    }


ENGINE = pod("engine", "home", "10.1.1.5", app="engine")
PODS = [ENGINE, pod("a", "home", "10.1.1.6"), pod("operator", "system", "10.1.2.7", app="operator")]


def lets_in(*peers: dict) -> list[str]:
    ingress = [{"from": list(peers), "ports": [{"port": "admin", "protocol": "TCP"}]}]
    spec = {"podSelector": {"matchLabels": {"app": "engine"}}, "ingress": ingress}
    return list(policy._accepted({"metadata": {"namespace": "home"}, "spec": spec}, ENGINE, PODS, PLACES))


def test_a_peer_without_a_namespace_is_of_the_policys_own() -> None:
    assert lets_in({"podSelector": {}}) == ["ip saddr { 10.1.1.5, 10.1.1.6 } tcp dport 8001 accept"]


def test_a_peer_of_another_namespace_is_found_by_both_selectors() -> None:
    system = {"matchLabels": {"kubernetes.io/metadata.name": "system"}}
    told = ["ip saddr { 10.1.2.7 } tcp dport 8001 accept"]
    assert lets_in({"namespaceSelector": system, "podSelector": {"matchLabels": {"app": "operator"}}}) == told
    assert lets_in({"namespaceSelector": system, "podSelector": {"matchLabels": {"app": "other"}}}) == []


def test_a_selector_it_cannot_read_is_refused_and_never_taken_for_everybody() -> None:
    with pytest.raises(TestbedError, match="matchExpressions"):
        lets_in({"podSelector": {"matchExpressions": []}})


def test_the_node_itself_is_let_in_and_the_rest_is_dropped() -> None:
    script = policy.rules("10.200.1.11", "10.1.1.5", [])
    assert "policy drop;" in script
    assert "ip saddr { 10.200.1.11, 10.1.1.1 } accept" in script
