"""An API of a test's own, served outside the cluster and asked through the API server."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """Answers with JSON, and logs nothing."""

    def answer(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def served_at(host: str, port: int, *, name: str, group: str, version: str) -> dict[str, Any]:
    """What makes the API server ask https://host:port for `group`/`version`: one list to apply, and to delete."""
    metadata = {"name": name, "namespace": "default"}
    served = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": 100,
        "versionPriority": 10,
        "insecureSkipTLSVerify": True,
        "service": {**metadata, "port": 443},
    }
    items = [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 443}]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [host]}],
            "ports": [{"port": port, "name": ""}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": served,
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}
