"""Who may reach the ports of every service's pods, and where downloads may go: what the operator's installer says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

Peer = dict[str, Any]
"""One entry of `from` in a NetworkPolicy."""
ANYWHERE: tuple[Peer, ...] = (
    {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}},
    {"ipBlock": {"cidr": "::/0", "except": ["fd00:ec2::254/128"]}},
)
"""All addresses but those at which clouds keep a node's credentials."""
HTTPS = (443,)
FOUND = 200
"""Characters of a text in the message that says how it is written."""
KEYS = frozenset({"admin", "http", "routes", "downloads"})
SELECTORS = frozenset({"namespaceSelector", "podSelector"})


class AccessInvalid(ValueError):
    """What was given is not who may reach what; the message says how it is written."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may reach the ports of every service's pods, as the operator's installer says. Never empty for `admin`: an
    empty `from` lets everybody in, and one without the operator keeps it from hearing that a service is Ready.
    """

    admin: tuple[Peer, ...]
    http: tuple[Peer, ...] = ()
    """In addition to the service's own namespace."""
    routes: tuple[str, ...] = ()
    """Namespaces whose pods are let in to `http` of a service that asks for a route through a Gateway there."""
    downloads: tuple[Peer, ...] = ANYWHERE
    """Where Jobs that download may go besides Services that their settings name. Empty: nowhere else."""
    download_ports: tuple[int, ...] = HTTPS
    """At which ports, besides those that their settings name."""

    @classmethod
    def read(cls, text: str) -> Access:
        """From JSON: {"admin": [peer, …], "http": [peer, …], "routes": [namespace, …], "downloads": {"to": [peer, …],
        "ports": [port, …]}}. Raises AccessInvalid.
        """
        try:
            peers = json.loads(text)
            admin, http, routes = peers["admin"], peers.get("http", []), peers.get("routes", [])
            given = peers.get("downloads", {})
            to, ports = given.get("to", [*ANYWHERE]), given.get("ports", [*HTTPS])
            lists = (admin, _is_peer), (http, _is_peer), (routes, _is_namespace), (to, _is_peer), (ports, _is_port)
            right = set(peers) <= KEYS and all(
                isinstance(entries, list) and all(map(is_one, entries)) for entries, is_one in lists
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            right, admin, http, routes, to, ports = False, [], [], [], [], []
        if not right or not admin:
            raise AccessInvalid(
                'expected {"admin": [peer, …], "http": [peer, …], "routes": [namespace, …], "downloads": {"to": [peer, '
                '…], "ports": [port, …]}} with peers as in `from` of a NetworkPolicy, none of them '
                "empty, the operator's own pods among those of admin, and names of "
                f"namespaces; found {text[:FOUND]!r}"
            )
        return cls(tuple(admin), tuple(http), tuple(routes), tuple(to), tuple(ports))


def _is_namespace(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) is not None


def _is_port(port: Any) -> bool:
    return isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536


def _is_peer(peer: Any) -> bool:
    """Whether the API server would take it: a policy that it refuses keeps every service from starting."""
    if not isinstance(peer, dict) or not peer or not all(isinstance(value, dict) for value in peer.values()):
        return False
    return set(peer) <= SELECTORS or (set(peer) == {"ipBlock"} and isinstance(peer["ipBlock"].get("cidr"), str))
