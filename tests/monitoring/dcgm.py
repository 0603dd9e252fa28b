"""A dcgm-exporter for GPUs that are not there: it answers with a fixture, for each pod that has a GPU."""

import itertools
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FIXTURE = Path(__file__).with_name("dcgm.prom")
_OF_POD = re.compile(r'\b(gpu|device|namespace|pod)="[^"]*"')


@dataclass
class Exporter:
    """Its address, and the pods (namespace, name) that have a GPU each; they may change while it answers."""

    address: str = ""
    gpus: dict[tuple[str, str], int] = field(default_factory=lambda: {("demo", "smollm2-1"): 0})
    """The GPU of each pod."""

    def have(self, pods: Collection[tuple[str, str]]) -> None:
        """Now these pods have GPUs: a pod keeps its own, and a new one gets the first that is free."""
        kept = {pod: self.gpus[pod] for pod in pods if pod in self.gpus}
        free = (gpu for gpu in itertools.count() if gpu not in kept.values())
        self.gpus = kept | {pod: next(free) for pod in pods if pod not in kept}

    def text(self) -> str:
        """The exposition: the fixture's lines, a sample for each pod."""
        gpus = self.gpus
        return "".join(
            line if line.startswith("#") else "".join(_of(line, gpu, *pod) for pod, gpu in gpus.items())
            for line in FIXTURE.read_text().splitlines(keepends=True)
        )


def _of(sample: str, gpu: int, namespace: str, pod: str) -> str:
    """A sample of another GPU and pod."""
    labels = {"gpu": str(gpu), "device": f"nvidia{gpu}", "namespace": namespace, "pod": pod}
    return _OF_POD.sub(lambda found: f'{found[1]}="{labels[found[1]]}"', sample)


@contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[Exporter]:
    """One that listens on a free port."""
    made = Exporter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = made.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer((host, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made.address = f"{host}:{server.server_address[1]}"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
