"""The operator's way to the engines' admin ports, with somebody on it who notes what each engine said of itself."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PATIENCE = 5.0  # s for an engine's answer; the operator has less


@dataclass(frozen=True)
class Reading:
    """What one answer to GET /warmup said, and at what Unix time; of whom it is, the answer says itself."""

    at: float
    pod_uid: str
    config_hash: str
    state: str
    terminal: bool


class Witness:
    """Passes requests on to the engines at `upstream`, an `--admin-url`, and keeps the readings in `heard`."""

    def __init__(self, upstream: str) -> None:
        self.heard: list[Reading] = []
        witness, address = self, urlsplit(upstream).netloc

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                onward = http.client.HTTPConnection(address, timeout=PATIENCE)
                try:
                    onward.request("GET", self.path)
                    answer = onward.getresponse()
                    body = answer.read()
                except OSError:  # it does not answer, and neither do we
                    self.close_connection = True
                    return
                finally:
                    onward.close()
                witness._note(self.path, answer.status, body)
                self.send_response(answer.status)
                for name in ("Location", "Content-Type"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet: what was said is in `heard`."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """An operator that is killed hangs up."""

        self._server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """The operator's `--admin-url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{{namespace}}/{{name}}"

    @contextmanager
    def listening(self) -> Iterator["Witness"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _note(self, path: str, status: int, body: bytes) -> None:
        if status != 200 or not path.endswith("/warmup"):
            return
        try:
            said = json.loads(body)
            reading = Reading(time.time(), said["podUID"], said["configHash"], said["state"], said["terminal"])
        except (ValueError, KeyError, TypeError):  # an engine that talks nonsense proves nothing
            return
        self.heard.append(reading)
