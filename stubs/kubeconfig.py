"""A kubeconfig read for where it leads, and written again to lead through a proxy with the same credentials."""

from __future__ import annotations

import base64
import copy
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class KubeconfigError(ValueError):
    """A kubeconfig that a proxy cannot stand in for, and why."""


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The current context of one file."""

    server: str
    authority: str
    raw: Any

    @staticmethod
    def load(path: Path) -> Kubeconfig:
        """Raises `KubeconfigError` for a context whose credentials would not pass through a proxy."""
        raw = yaml.safe_load(path.read_text())
        context = _named(raw, "contexts", raw["current-context"], path)["context"]
        cluster = _named(raw, "clusters", context["cluster"], path)["cluster"]
        user = _named(raw, "users", context["user"], path)["user"]
        if held := [key for key in user if key.startswith("client-")]:
            raise KubeconfigError(
                f"{path}: user {context['user']} shows a client certificate ({held[0]}), which ends at the proxy:"
                " use a kubeconfig with a token"
            )
        if "certificate-authority-data" in cluster:
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        else:
            authority = (path.parent / cluster["certificate-authority"]).read_text()
        return Kubeconfig(cluster["server"].rstrip("/"), authority, raw)

    def tls(self) -> ssl.SSLContext:
        """Trust in the API server alone."""
        return ssl.create_default_context(cadata=self.authority)

    def through(self, server: str, authority: bytes) -> str:
        """The same file with every cluster at `server`; as JSON, which is YAML."""
        raw = copy.deepcopy(self.raw)
        for cluster in raw["clusters"]:
            cluster["cluster"] = {
                "server": server,
                "certificate-authority-data": base64.b64encode(authority).decode(),
            }
        return json.dumps(raw, indent=1)


def _named(raw: Any, kind: str, name: str, path: Path) -> Any:
    for entry in raw.get(kind, []):
        if entry["name"] == name:
            return entry
    raise KubeconfigError(f"{path} has no entry {name!r} under {kind}")
