"""Who may reach the ports of every service's pods: what the installer of the operator says of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Peer = dict[str, Any]
"""One entry of `from` in a NetworkPolicy."""


class AccessInvalid(ValueError):
    """What was given is not who may reach what; the message says how it is written."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may reach the ports of every service's pods, as the operator's installer says. Never empty for `admin`: an
    empty `from` lets everybody in, and one without the operator keeps it from hearing that a service is Ready.
    """

    admin: tuple[Peer, ...]
    http: tuple[Peer, ...] = ()
    """Beside the service's own namespace."""

    @classmethod
    def read(cls, text: str) -> Access:
        """From JSON: {"admin": [peer, …], "http": [peer, …]}. Raises AccessInvalid."""
        try:
            told = json.loads(text)
            admin, http = told["admin"], told.get("http", [])
            right = set(told) <= {"admin", "http"} and all(
                isinstance(peers, list) and all(isinstance(peer, dict) and peer for peer in peers)
                for peers in (admin, http)
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            right, admin, http = False, [], []
        if not right or not admin:
            raise AccessInvalid(
                'expected {"admin": [peer, …], "http": [peer, …]} with peers as in `from` of a NetworkPolicy, none of '
                f"them empty, the operator's own pods among those of admin; found {text!r}"
            )
        return cls(tuple(admin), tuple(http))
