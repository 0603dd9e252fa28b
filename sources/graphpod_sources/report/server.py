"""The admin port of a fetch: `GET /progress` and `GET /livez`."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

from graphpod_sources.progress import Progress


class Server(ThreadingHTTPServer):
    """Answers from daemon threads until the process ends. A port that is taken raises OSError."""

    daemon_threads = True
    request_queue_size = 16
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, progress: Progress, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 5  # s without a whole request

            def do_GET(self) -> None:
                match self.path.partition("?")[0]:
                    case "/progress":
                        self._answer(200, progress.snapshot().document())
                    case "/livez":
                        self._answer(200, {"status": "ok"})
                    case _:
                        self._answer(404, {"error": "there are /progress and /livez"})

            def _answer(self, status: int, document: object) -> None:
                body = json.dumps(document).encode() + b"\n"
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet: a kubelet asks every few seconds."""

        super().__init__(("", port), Handler)

    def server_bind(self) -> None:
        """Of both families: a cluster may have either."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        super(HTTPServer, self).server_bind()  # HTTPServer's own asks DNS for a name

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.2,), name="admin", daemon=True).start()
