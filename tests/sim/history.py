"""Every version that was ever written, as a watch saw it: nothing that was said hides between two looks."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from testbed.errors import TestbedError
from tests.places import Manifest, Place

PATHS = {
    "gisvc": "/apis/graphpod.dev/v1alpha1/namespaces/{namespace}/inferenceservices",
    "deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "pod": "/api/v1/namespaces/{namespace}/pods",
}
PAUSE = 0.2  # s before a watch that ended is opened again


@dataclass(frozen=True)
class Version:
    """One state of an object; `at` (Unix time) is when the watch told of it."""

    at: float
    deleted: bool
    body: Manifest

    @property
    def number(self) -> int:
        """Its place in the order of all changes of the cluster: one etcd counts them."""
        return int(self.body["metadata"]["resourceVersion"])

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


@dataclass
class History:
    """The objects of one kind in a namespace, each version in its order."""

    versions: list[Version] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of(cls, place: Place, kind: str = "gisvc") -> Iterator["History"]:
        """From now on; `kind` is one of PATHS."""
        history = cls()
        watch = _Watch(place, PATHS[kind].format(namespace=place.namespace), history.versions)
        watch.list()
        watch.start()
        try:
            yield history
        finally:
            watch.stop()

    @property
    def seen(self) -> list[Manifest]:
        """The objects alone."""
        return [version.body for version in self.versions if not version.deleted]

    def conditions(self, name: str) -> list[dict[str, str]]:
        """The status of each condition by type, one entry for each version of the service."""
        return [
            {row["type"]: row["status"] for row in found.get("status", {}).get("conditions", ())}
            for found in self.seen
            if found["metadata"]["name"] == name
        ]


class _Watch(threading.Thread):
    """One kind. A watch that ends, with its API server for one, is opened again where it ended."""

    def __init__(self, place: Place, path: str, into: list[Version]) -> None:
        super().__init__(daemon=True)
        self._place, self._path, self._into = place, path, into
        self._version = ""
        self._stopped = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._version:
                    self.list()
                self._follow()
            except TestbedError:  # the API server is away, on purpose; a list tells afterwards what is
                pass
            self._stopped.wait(PAUSE)

    def stop(self) -> None:
        self._stopped.set()
        if self._process is not None:
            self._process.terminate()
        self.join(10)

    def list(self) -> None:
        """What there is."""
        found = json.loads(self._place.cluster.kubectl("get", "--raw", self._path))
        for item in found["items"]:
            self._into.append(Version(time.time(), False, item))
        self._version = found["metadata"]["resourceVersion"]

    def _follow(self) -> None:
        query = f"{self._path}?watch=1&allowWatchBookmarks=true&resourceVersion={self._version}"
        argv = [self._place.cluster.binary("kubectl"), "get", "--raw", query]
        env = self._place.cluster.environment()
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as process:
            self._process = process
            assert process.stdout is not None
            for line in process.stdout:
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:  # cut off in the middle
            return
        if event["type"] == "ERROR":  # too old: listed again
            self._version = ""
            return
        self._version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "BOOKMARK":
            self._into.append(Version(time.time(), event["type"] == "DELETED", event["object"]))
