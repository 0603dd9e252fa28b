"""Questions to the API server without a kubectl process for each: while it comes up, and of those that ask often."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError


class NotThere(TestbedError):
    """The server answers that there is no such object or kind."""


@dataclass(frozen=True)
class Api:
    server: str
    ca: Path
    token: str

    def get(self, path: str, timeout: float = 5.0) -> Any | None:
        """The object at `path`, the text of a health endpoint, or None while it is not there or the server does not
        answer."""
        request = urllib.request.Request(self.server + path, headers={"Authorization": f"Bearer {self.token}"})
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
            with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
                body = answer.read().decode()
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None  # refused, 404, 500 of a component that is not ready: ask again
        return json.loads(body) if body.startswith("{") else body

    def read(self, path: str, timeout: float = 60.0) -> Any:
        """The object at `path`. `TestbedError` with kubectl's words where there is none, or no answer."""
        return self._answer("GET", path, None, "", timeout)

    def apply(self, path: str, body: Any, manager: str = "kubectl", timeout: float = 60.0) -> Any:
        """Server-side apply of the object at `path`, with kubectl's checks; the object as it is then."""
        checked = f"{path}?fieldManager={manager}&fieldValidation=Strict"
        return self._answer("PATCH", checked, body, "application/apply-patch+yaml", timeout)

    def merge(self, path: str, change: Any, timeout: float = 60.0) -> None:
        """Merge patch of the object at `path`."""
        self._answer("PATCH", path, change, "application/merge-patch+json", timeout)

    def delete(self, path: str, timeout: float = 60.0) -> None:
        """Delete the object at `path`, without waiting for its end. One that is not there is fine."""
        with suppress(NotThere):
            self._answer("DELETE", path, None, "", timeout)

    def _answer(self, method: str, path: str, body: Any, content: str, timeout: float) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": content} if content else {})
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        context = ssl.create_default_context(cafile=str(self.ca))
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            refused = e.read().decode(errors="replace")
            said = json.loads(refused) if refused.startswith("{") else {"reason": e.code, "message": refused}
            kind = NotThere if e.code == HTTPStatus.NOT_FOUND else TestbedError
            raise kind(f"Error from server ({said.get('reason')}): {said.get('message')}") from e
        except (OSError, HTTPException, ValueError) as e:  # nothing listens, or it ended amid its answer
            raise TestbedError(f"{method} {path}: {e}") from e

    def create(self, path: str, bodies: Iterable[Any], timeout: float = 30.0) -> None:
        """Makes objects in the collection at `path` over one connection. `TestbedError` with the server's words."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        context = ssl.create_default_context(cafile=str(self.ca))
        connection = HTTPSConnection(self.server.removeprefix("https://"), timeout=timeout, context=context)
        with closing(connection):
            for body in bodies:
                try:
                    connection.request("POST", path, json.dumps(body), headers)
                    answer = connection.getresponse()
                    said = answer.read().decode(errors="replace")
                except (OSError, HTTPException) as e:
                    raise TestbedError(f"POST {path}: {e}") from e
                if answer.status != 201:
                    raise TestbedError(f"POST {path} answered {answer.status}: {said}")

    def ready(self) -> bool:
        return self.get("/readyz") == "ok"

    def has_service_account(self) -> bool:
        """Pods need it; the controller manager makes it."""
        return self.get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def ready_nodes(self) -> int:
        return sum(map(_ready, (self.get("/api/v1/nodes") or {}).get("items", [])))

    def ready_node(self, name: str) -> bool:
        node = self.get(f"/api/v1/nodes/{name}")
        return node is not None and _ready(node)


def _ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
