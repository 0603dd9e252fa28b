"""Who may reach the ports of every service's pods: what the installer of the operator says of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

Peer = dict[str, Any]
"""One entry of `from` in a NetworkPolicy."""
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

    @classmethod
    def read(cls, text: str) -> Access:
        """From JSON: {"admin": [peer, …], "http": [peer, …], "routes": [namespace, …]}. Raises AccessInvalid."""
        try:
            peers = json.loads(text)
            admin, http, routes = peers["admin"], peers.get("http", []), peers.get("routes", [])
            right = set(peers) <= {"admin", "http", "routes"} and all(
                isinstance(entries, list) and all(map(is_one, entries))
                for entries, is_one in ((admin, _is_peer), (http, _is_peer), (routes, _is_namespace))
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            right, admin, http, routes = False, [], [], []
        if not right or not admin:
            raise AccessInvalid(
                'expected {"admin": [peer, …], "http": [peer, …], "routes": [namespace, …]} with peers as in `from` of '
                "a NetworkPolicy, none of them empty, the operator's own pods among those of admin, and names of "
                f"namespaces; found {text!r}"
            )
        return cls(tuple(admin), tuple(http), tuple(routes))


def _is_namespace(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) is not None


def _is_peer(peer: Any) -> bool:
    """Whether the API server would take it: a policy that it refuses keeps every service from starting."""
    if not isinstance(peer, dict) or not peer or not all(isinstance(value, dict) for value in peer.values()):
        return False
    return set(peer) <= SELECTORS or (set(peer) == {"ipBlock"} and isinstance(peer["ipBlock"].get("cidr"), str))
