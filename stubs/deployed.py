"""A stub brought into a cluster by one call, and what a test asks of it there."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stubs.manifests import DEVICE_PLUGIN_IMAGE, Manifest
from stubs.web import CONTROL_PORT
from testbed.binaries import golang
from testbed.images.packed import architecture
from testbed.nodes.pause import docker_archive
from testbed.reach import takes_connections

LIMIT = 60  # s until a stub's pods are ready


class Kubectl(Protocol):
    """A cluster that takes kubectl's words."""

    def kubectl(self, *args: str, input: str | None = None, timeout: float = 60.0) -> str: ...


@dataclass(frozen=True, slots=True)
class Deployed:
    """One stub. Its addresses serve the host as well as pods."""

    url: str
    control_url: str

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of the control port; bytes go as they are, everything else as JSON. An `HTTPError` for a no."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        request = urllib.request.Request(self.control_url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return json.load(answer)


def bring(cluster: Kubectl, manifests: Sequence[Manifest]) -> Deployed:
    """Apply a stub's objects and wait until it answers; its Service says where it is."""
    objects = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(objects))
    workload = next(m for m in manifests if m["kind"] in ("Deployment", "DaemonSet"))
    name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
    where = f"{workload['kind'].lower()}/{name}"
    cluster.kubectl("-n", namespace, "rollout", "status", where, f"--timeout={LIMIT}s", timeout=LIMIT + 10)
    if not any(m["kind"] == "Service" for m in manifests):
        pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]
        address = next(p["status"]["podIP"] for p in pods if p["metadata"]["name"].startswith(name))
        return Deployed("", f"http://{address}:{CONTROL_PORT}")
    spec = json.loads(cluster.kubectl("-n", namespace, "get", "service", name, "-o", "json"))["spec"]
    scheme = "https" if spec["ports"][0]["port"] == 443 else "http"
    found = Deployed(f"{scheme}://{spec['clusterIP']}", f"http://{spec['clusterIP']}:{CONTROL_PORT}")
    deadline = time.monotonic() + LIMIT
    while not takes_connections(found.control_url):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{where} in {namespace} is ready, but {found.control_url} takes no connection")
        time.sleep(0.1)
    return found


def device_plugin_image(folder: Path) -> Path:
    """The device plugin's image as an archive in a folder: one static program."""
    [program] = golang.build(["deviceplugin"]).values()
    archive = folder / "deviceplugin.tar"
    archive.write_bytes(docker_archive(program.read_bytes(), architecture(), DEVICE_PLUGIN_IMAGE))
    return archive
