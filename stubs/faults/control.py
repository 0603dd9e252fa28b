"""The control port: faults put up and taken down, and counts read, over HTTP while a stub runs.

`GET /faults` rows with their numbers and hits · `POST /faults` a row, answers its number · `DELETE /faults/NUMBER` ·
`DELETE /faults` · `GET /counts`. A stub adds paths of its own. A request that cannot be is a 400 that says why.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stubs.faults import fault
from stubs.faults.board import Board
from stubs.faults.fault import FaultError

Verb = Callable[[str, bytes], Any]
"""Takes what follows the path's prefix, and the body; what it returns is the JSON of the answer."""


class Control:
    """One control port. `match` is the dataclass of the stub's faults; `more` maps (method, path's start) to a verb."""

    def __init__(
        self,
        board: Board[Any],
        match: type[Any],
        counts: Callable[[], Mapping[str, int]],
        more: Mapping[tuple[str, str], Verb] | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._board, self._match = board, match
        self._verbs: dict[tuple[str, str], Verb] = {
            ("GET", "/faults"): lambda _, __: [_row(armed) for armed in board.all()],
            ("POST", "/faults"): self._add,
            ("DELETE", "/faults"): self._lift,
            ("GET", "/counts"): lambda _, __: dict(counts()),
            **(more or {}),
        }
        verbs = self._verbs

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                key = max((k for k in verbs if k[0] == self.command and _under(self.path, k[1])), default=None)
                try:
                    if key is None:
                        known = ", ".join(f"{method} {path}" for method, path in verbs)
                        raise FaultError(f"no {self.command} {self.path} here; there are {known}")
                    status, said = 200, verbs[key](self.path[len(key[1]) :].strip("/"), body)
                except ValueError as error:  # FaultError and what is no JSON
                    status, said = 400, {"error": str(error)}
                text = json.dumps(said).encode() + b"\n"
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_DELETE = _answer

            def log_message(self, *_: object) -> None:
                """Quiet: a test that polls would fill the log."""

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    @contextmanager
    def serving(self) -> Iterator[Control]:
        """Serve from a thread of its own."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _add(self, _: str, body: bytes) -> Any:
        return _row(self._board.add(fault.read(json.loads(body), self._match)))

    def _lift(self, number: str, _: bytes) -> Any:
        if not number:
            self._board.clear()
        elif not number.isdecimal() or not self._board.lift(int(number)):
            raise FaultError(f"no fault has number {number}; there are {[armed.number for armed in self._board.all()]}")
        return [_row(armed) for armed in self._board.all()]


def _row(armed: Any) -> dict[str, Any]:
    return {"number": armed.number, "hits": armed.hits, **fault.write(armed.fault)}


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")
