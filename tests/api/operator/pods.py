"""Pods without a kubelet: their status is written by the test, their admin ports are one local HTTP server."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stubs.engine.answer import Answer
from stubs.engine.sleeping import Sleeping
from stubs.engine.story import AWAKE
from testbed import Cluster
from tests.places import Manifest, Place

PLANNED = {"prefill": 22, "decode": 4}
"""Sizes of the default ladders on a CPU."""
EFFECTIVE = {"prefill": "Breakable", "decode": "Full"}


class AdminPorts:
    """`/warmup` of any number of pods, at `/NAMESPACE/NAME/warmup`; a pod without a report answers 404."""

    def __init__(self) -> None:
        self.reports: dict[str, Manifest] = {}
        self.reads: dict[str, int] = {}
        self.asked: list[str] = []
        """Paths of POST, in order."""
        self.engines: dict[str, Sleeping] = {}
        ports = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ports.reads[self.path] = ports.reads.get(self.path, 0) + 1
                report = ports.reports.get(self.path)
                body = json.dumps(report or {}).encode()
                self.send_response(200 if report else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                place, _, order = self.path.rpartition("/")
                ports.asked.append(self.path)
                engine = ports.engines.get(place)
                answer = Answer(404, b"Not Found") if engine is None else engine.answer(f"/{order}")
                if engine is not None:
                    ports.reports[f"{place}/warmup"]["sleep"] = engine.said
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None:
                """Quiet: the operator's log is the evidence."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """The operator's `--admin-url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{{namespace}}/{{name}}"

    @contextmanager
    def serving(self) -> Iterator["AdminPorts"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        yield self
        self._server.shutdown()
        self._server.server_close()

    def tell(self, pod: Manifest, report: Manifest) -> None:
        """From now on the pod's admin port answers with this report."""
        metadata = pod["metadata"]
        self.reports[f"/{metadata['namespace']}/{metadata['name']}/warmup"] = report

    def obey(self, pod: Manifest) -> None:
        """From now on the pod takes orders about its weights, as a stub engine that can sleep and reload."""
        self.engines[_place(pod)] = Sleeping(b'{"features": {"sleep": true, "reload": true}}')

    def orders(self, pod: Manifest) -> list[str]:
        """What the pod was sent, in order."""
        place = _place(pod)
        return [path.removeprefix(place) for path in self.asked if path.startswith(f"{place}/")]

    def reads_of(self, pod: Manifest) -> int:
        """How often the pod's warm-up was read."""
        return self.reads.get(f"/{pod['metadata']['namespace']}/{pod['metadata']['name']}/warmup", 0)


def _place(pod: Manifest) -> str:
    return f"/{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def report(pod: Manifest, state: str = "Ready", captured: float = 1.0, **changes: Any) -> Manifest:
    """A warm-up report of a pod, with the given part of its sizes captured."""
    graph = {
        phase: {
            "requested": "Auto",
            "planned": EFFECTIVE[phase],
            "effective": EFFECTIVE[phase],
            "sizes": {"planned": planned, "captured": int(planned * captured), "failed": 0},
            "segments": 31,
            "poolBytes": 0,
            "driverBytes": 0,
            "captureSeconds": 1.5,
            "selfCheck": "Passed" if state == "Ready" else "NotRun",
        }
        for phase, planned in PLANNED.items()
    }
    return {
        "podUID": pod["metadata"]["uid"],
        "configHash": pod["metadata"]["annotations"]["graphpod.dev/config-hash"],
        "engine": "0.1.0",
        "backend": "Recorder",
        "state": state,
        "terminal": state in ("Ready", "Failed"),
        "graph": graph,
        "decisions": [],
        "stages": [],
        "kv": {"pages": 8, "pageSize": 16, "tokens": 128},
        "failure": None,
        "sleep": dict(AWAKE),
        **changes,
    }


def set_status(cluster: Cluster, pod: Manifest, status: Manifest) -> None:
    """What a kubelet would write."""
    metadata = pod["metadata"]
    Place(cluster, metadata["namespace"]).merge("pod", metadata["name"], {"status": status}, "status")


def running(ready: bool, container: str = "containerd://1", restarts: int = 0, **extra: Any) -> Manifest:
    """Status of a pod whose engine runs."""
    return {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [
            {"type": kind, "status": "True" if ready or kind == "PodScheduled" else "False"}
            for kind in ("PodScheduled", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": "engine",
                "image": "x",
                "imageID": "x",
                "containerID": container,
                "ready": ready,
                "started": ready,
                "restartCount": restarts,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                **extra,
            }
        ],
    }


def crashed(code: int, message: str, restarts: int = 1, reason: str = "Error") -> Manifest:
    """Status of a pod whose engine ended and will be restarted."""
    status = running(False, restarts=restarts)
    ended = {"exitCode": code, "reason": reason, "message": message, "containerID": "containerd://0"}
    status["containerStatuses"][0] |= {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": ended},
    }
    return status


def unscheduled(message: str) -> Manifest:
    """Status of a pod the scheduler cannot place."""
    return {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}],
    }
