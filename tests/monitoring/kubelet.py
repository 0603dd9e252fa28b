"""A kubelet's part for pods of services, without containers: an address on loopback, an actor behind it, the status."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from testbed import Cluster
from testbed.errors import TestbedError
from tests.api.operator.pods import running, set_status
from tests.monitoring.actor import Actor, Load
from tests.places import LABEL

TICK = 0.5
CONFIG = "engine.json"


@dataclass(frozen=True)
class Part:
    """What the engine of a service plays."""

    fault: str = ""
    load: Load = field(default_factory=Load)
    spoiled: bytes | None = None
    """What `/metrics` answers in place of the engine's own; empty: nothing, on an open connection."""


class Kubelet:
    """Plays the pods of the services in `parts`, by name of the service, until the block ends."""

    def __init__(self, cluster: Cluster, parts: Mapping[str, Part]) -> None:
        self._cluster, self._parts = cluster, parts
        self.actors: dict[str, Actor] = {}
        """By pod uid."""
        self.pods: dict[str, dict[str, Any]] = {}
        self._ready: set[str] = set()
        self._numbers = iter(range(1, 250))
        self._end = threading.Event()
        self.trouble: BaseException | None = None

    @contextmanager
    def playing(self) -> Iterator["Kubelet"]:
        thread = threading.Thread(target=self._run, daemon=True, name="kubelet")
        thread.start()
        try:
            yield self
        finally:
            self._end.set()
            thread.join(30)
            for actor in self.actors.values():
                actor.close()

    def of(self, service: str) -> Actor:
        """The engine of a service's only pod."""
        (uid,) = [uid for uid, pod in self.pods.items() if pod["metadata"]["labels"][LABEL] == service]
        return self.actors[uid]

    def _run(self) -> None:
        while not self._end.wait(TICK):
            try:
                self._look()
            except TestbedError:
                continue  # a pod that went meanwhile
            except BaseException as error:  # a thread's error would be lost
                self.trouble = error
                raise

    def _look(self) -> None:
        found = {
            pod["metadata"]["uid"]: pod for pod in self._cluster.read(f"/api/v1/pods?labelSelector={LABEL}")["items"]
        }
        for uid in self.actors.keys() - found.keys():
            self.actors.pop(uid).close()
            self.pods.pop(uid)
        for uid, pod in found.items():
            service = pod["metadata"]["labels"][LABEL]
            if uid not in self.actors:
                number = next(self._numbers)
                self._start(uid, pod, self._parts.get(service, Part()), f"127.77.0.{number}")
            elif uid not in self._ready and self.actors[uid].ready:
                self._ready.add(uid)
                self._status(self.pods[uid], True)

    def _start(self, uid: str, pod: dict[str, Any], part: Part, address: str) -> None:
        metadata = pod["metadata"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        name = volumes["config"]["configMap"]["name"]
        config = self._cluster.read(f"/api/v1/namespaces/{metadata['namespace']}/configmaps/{name}")["data"][CONFIG]
        self.actors[uid] = Actor(address, config.encode(), uid, part.fault, part.load, part.spoiled)
        self.pods[uid] = pod | {"address": address}
        self._status(self.pods[uid], False)

    def _status(self, pod: dict[str, Any], ready: bool) -> None:
        address = pod["address"]
        set_status(self._cluster, pod, {**running(ready), "podIP": address, "podIPs": [{"ip": address}]})
