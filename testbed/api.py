"""Questions to the API server while it comes up: no kubectl process per question."""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError


@dataclass(frozen=True)
class Api:
    server: str
    ca: Path
    token: str

    def get(self, path: str, timeout: float = 5.0) -> Any | None:
        """The object at `path`, the text of a health endpoint, or None while it is not there or nobody answers."""
        request = urllib.request.Request(self.server + path, headers={"Authorization": f"Bearer {self.token}"})
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
            with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
                body = answer.read().decode()
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None  # refused, 404, 500 of a component that is not ready: ask again
        return json.loads(body) if body.startswith("{") else body

    def create(self, path: str, body: Any, timeout: float = 30.0) -> None:
        """Makes an object in the collection at `path`. Raises `TestbedError` with the server's words."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.server + path, json.dumps(body).encode(), headers)
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
            urllib.request.urlopen(request, timeout=timeout, context=context).close()
        except urllib.error.HTTPError as e:
            raise TestbedError(f"POST {path} answered {e.code}: {e.read().decode(errors='replace')}") from e
        except OSError as e:
            raise TestbedError(f"POST {path}: {e}") from e

    def ready(self) -> bool:
        return self.get("/readyz") == "ok"

    def has_service_account(self) -> bool:
        """Pods need it; the controller manager makes it."""
        return self.get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def ready_nodes(self) -> int:
        nodes = (self.get("/api/v1/nodes") or {}).get("items", [])
        conditions = [c for node in nodes for c in node.get("status", {}).get("conditions", [])]
        return sum(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
