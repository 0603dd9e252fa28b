"""A gateway of the Gateway API for tests: it follows the rules of an HTTPRoute, and answers 404 where none matches.

Of a route it knows path matches (Exact, PathPrefix by whole elements) and the URLRewrite filter of a path. As gateways
may, it passes a path on as the client wrote it, `..` and escapes included. One backend, one answer at a time for each
connection, which it closes.
"""

import http.client
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Route = Mapping[str, Any]
HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade"}


class Gateway:
    """Serves `route` (an HTTPRoute's body) on a free port of this machine, in front of `backend`, (host, port)."""

    def __init__(self, route: Route, backend: tuple[str, int]) -> None:
        rules = route["spec"]["rules"]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

            def _pass(self) -> None:
                path, _, query = self.path.partition("?")
                to = destination(rules, path)
                length = int(self.headers.get("content-length", 0))
                body = self.rfile.read(length)
                if to is None:
                    self.send_response(404)
                    self.send_header("x-answered-by", "gateway")
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                link = http.client.HTTPConnection(*backend, timeout=60)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
                link.request(self.command, f"{to}?{query}" if query else to, body, headers)
                answer = link.getresponse()
                said = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP | {"content-length"}:
                        self.send_header(name, value)
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)
                link.close()

            do_GET = do_POST = _pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Gateway":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def destination(rules: list[Mapping[str, Any]], path: str) -> str | None:
    """The path at the backend for a client's path, by the rule whose match is the most exact; None without one."""
    found: list[tuple[int, Mapping[str, Any], str]] = []
    for rule in rules:
        for match in rule["matches"]:
            kind, value = match["path"]["type"], match["path"]["value"]
            if kind == "Exact" and path == value:
                found.append((1 << 16, rule, value))
            elif kind == "PathPrefix" and (path == value or path.startswith(value.rstrip("/") + "/")):
                found.append((len(value), rule, value))
    if not found:
        return None
    _, rule, value = max(found, key=lambda one: one[0])
    for filter in rule.get("filters", ()):
        rewrite = filter["urlRewrite"]["path"]
        if rewrite["type"] == "ReplaceFullPath":
            return str(rewrite["replaceFullPath"])
        return str(rewrite["replacePrefixMatch"]).rstrip("/") + path[len(value) :]
    return path
