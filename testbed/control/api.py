"""Questions to the API server without a kubectl process for each: while it comes up, and of those that ask often."""

import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError


class NotThere(TestbedError):
    """The server answers that there is no such object or kind."""


class Connections(threading.local):
    """Those of a thread, by server and its CA. To shake hands takes both sides more time than most answers."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, Path], HTTPConnection] = {}


CONNECTIONS = Connections()


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

    def merge(self, path: str, change: Any, manager: str = "kubectl", timeout: float = 60.0) -> None:
        """Merge patch of the object at `path`."""
        self._answer("PATCH", f"{path}?fieldManager={manager}", change, "application/merge-patch+json", timeout)

    def post(self, path: str, body: Any, timeout: float = 60.0) -> Any:
        """Makes an object in the collection at `path`; the object as it is then, the verdict of a review."""
        return self._answer("POST", path, body, "application/json", timeout)

    def delete(self, path: str, timeout: float = 60.0) -> None:
        """Delete the object at `path`, without waiting for its end. One that is not there is fine."""
        with suppress(NotThere):
            self._said("DELETE", path, None, "", timeout)

    def _answer(self, method: str, path: str, body: Any, content: str, timeout: float) -> Any:
        try:
            return json.loads(self._said(method, path, body, content, timeout))
        except ValueError as e:
            raise TestbedError(f"{method} {path}: {e}") from e

    def _said(self, method: str, path: str, body: Any, content: str, timeout: float) -> str:
        """The answer's text, of which a deletion reads nothing: it may be deeper than Python parses."""
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": content} if content else {})
        data = json.dumps(body).encode() if body is not None else None
        try:
            status, text = self._exchange(method, path, data, headers, timeout)
        except (OSError, HTTPException) as e:  # nothing listens, or it ended amid its answer
            raise TestbedError(f"{method} {path}: {e}") from e
        if status >= HTTPStatus.BAD_REQUEST:
            said = json.loads(text) if text.startswith("{") else {"reason": status, "message": text}
            kind = NotThere if status == HTTPStatus.NOT_FOUND else TestbedError
            raise kind(f"Error from server ({said.get('reason')}): {said.get('message')}")
        return text

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], timeout: float
    ) -> tuple[int, str]:
        """Over this thread's connection; over a new one where the server has ended it."""
        connection = CONNECTIONS.kept.pop((self.server, self.ca), None)
        if connection is not None:
            try:
                return self._over(connection, method, path, data, headers, timeout)
            except TimeoutError:
                raise
            except (OSError, HTTPException):
                pass
        return self._over(self._opened(), method, path, data, headers, timeout)

    def _over(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
        timeout: float,
    ) -> tuple[int, str]:
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            said = answer.read().decode(errors="replace")
        except BaseException:
            connection.close()
            raise
        CONNECTIONS.kept[self.server, self.ca] = connection
        return answer.status, said

    def _opened(self) -> HTTPConnection:
        """Not connected yet."""
        context = ssl.create_default_context(cafile=str(self.ca))
        return HTTPSConnection(self.server.removeprefix("https://"), context=context)

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
