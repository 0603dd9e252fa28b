"""NetworkPolicies on a testbed with real nodes: nft rules in the network namespaces of the pods they select.

What a network plugin does all the time is done here once for each call, from the policies and pods that exist then.
Ingress by podSelector and namespaceSelector with matchLabels, and by port: what our policies use, and no more.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.cluster import Cluster
from testbed.command import run
from testbed.errors import TestbedError

Object = Mapping[str, Any]
TABLE = "inet networkpolicy"


def enforce(cluster: Cluster) -> set[str]:
    """Let in to every selected pod what its policies let in, its own node, and nothing else. The names of the pods."""
    pods = [pod for pod in _all(cluster, "pods") if pod["status"].get("podIP") and not pod["spec"].get("hostNetwork")]
    places = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in _all(cluster, "namespaces")}
    policies = _all(cluster, "networkpolicies")
    selected: set[str] = set()
    for pod in pods:
        mine = [policy for policy in policies if _selects(policy, pod)]
        if mine and (process := _process(pod)) is not None:
            lines = [line for policy in mine for line in _accepted(policy, pod, pods, places)]
            _write(process, rules(pod["status"]["hostIP"], pod["status"]["podIP"], lines))
            selected.add(pod["metadata"]["name"])
    return selected


def rules(node: str, pod: str, accepted: list[str]) -> str:
    """nft's script for one pod. The kubelet asks from the gateway of the pod's network, the first of its addresses."""
    gateway = pod.rpartition(".")[0] + ".1"
    lines = [
        "ct state related accept",
        # Answers to the pod. A connection that others opened earlier is judged like a new one.
        "ct direction reply accept",
        'iif "lo" accept',
        f"ip saddr {{ {node}, {gateway} }} accept",
    ]
    body = "\n".join([*lines, *accepted])
    chain = f"chain ingress {{\ntype filter hook input priority 0; policy drop;\n{body}\n}}"
    return f"table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{chain}\n}}\n"


def _accepted(policy: Object, pod: Object, pods: list[Any], places: Mapping[str, Any]) -> Iterator[str]:
    for rule in policy["spec"].get("ingress", ()):
        sources = [
            other["status"]["podIP"]
            for other in pods
            if any(_matches(peer, policy["metadata"]["namespace"], other, places) for peer in rule["from"])
        ]
        for port in rule["ports"]:
            if sources:
                yield f"ip saddr {{ {', '.join(sources)} }} tcp dport {_number(port['port'], pod)} accept"


def _selects(policy: Object, pod: Object) -> bool:
    same = policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same and _has(policy["spec"]["podSelector"], pod["metadata"].get("labels", {}))


def _matches(peer: Object, home: str, pod: Object, places: Mapping[str, Any]) -> bool:
    place = pod["metadata"]["namespace"]
    inside = _has(peer["namespaceSelector"], places[place]) if "namespaceSelector" in peer else place == home
    return inside and _has(peer.get("podSelector", {}), pod["metadata"].get("labels", {}))


def _has(selector: Object, labels: Object) -> bool:
    if selector.keys() - {"matchLabels"}:
        raise TestbedError(f"a selector by {sorted(selector)} is more than this enforces")
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def _number(port: str | int, pod: Object) -> int:
    if isinstance(port, int):
        return port
    named = {one.get("name"): one["containerPort"] for one in pod["spec"]["containers"][0]["ports"]}
    return int(named[port])


def _process(pod: Object) -> int | None:
    """A process in the pod's network, by the cgroup the kubelet made for it and by its address: what prepares a
    container is in the cgroup while it still has the node's network."""
    name, address = f"/pod{pod['metadata']['uid']}/", f"|-- {pod['status']['podIP']}\n"
    for groups in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if name in groups.read_text() and address in groups.with_name("net").joinpath("fib_trie").read_text():
                return int(groups.parent.name)
        except OSError:
            continue  # it ended meanwhile
    return None


def _write(process: int, script: str) -> None:
    # A connection from before the rules has no beginning that was seen: its packets belong to none.
    strict = "echo 0 > /proc/sys/net/netfilter/nf_conntrack_tcp_loose"
    run(["nsenter", f"--net=/proc/{process}/ns/net", "sh", "-c", f"{strict} && nft -f -"], input=script)


def _all(cluster: Cluster, kind: str) -> list[Any]:
    found: list[Any] = json.loads(cluster.kubectl("get", kind, "-A", "-o", "json"))["items"]
    return found
