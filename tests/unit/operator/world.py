"""A cluster in memory with one service, and the operator's parts over it."""

import json
from dataclasses import replace
from typing import Any

from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.store import Store
from graphpod_operator.controller.reconcile import Reconciler
from graphpod_operator.controller.weights_sender import WeightsSender
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.download_progress import DownloadProgress
from graphpod_operator.observe.ladder_advisor import LadderAdvisor
from graphpod_operator.observe.warmup_poller import Unreachable, Warmups
from graphpod_operator.status.write_throttle import MOMENT_SECONDS
from graphpod_operator.telemetry.metrics import Meters
from graphpod_operator.watch.informer import Informer, fill
from graphpod_operator.watch.optional_kinds import OptionalKinds
from graphpod_operator.watch.workqueue import KeyQueue
from tests.unit.operator.cluster import FakeCluster, FakeDiscovery
from tests.unit.operator.objects import INSTALLED, NAMESPACE, inference_service, planned, pod

PROMETHEUS = "http://prometheus.monitoring.svc:9090"
KEY = Key(NAMESPACE, "demo")
HASH = planned().config_hash


class StillClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.between = 0.0
        """Moments between looks, which no timestamp shows."""

    def monotonic(self) -> float:
        return self.now + self.between

    def timestamp(self) -> str:
        return f"2026-01-01T00:00:{int(self.now) % 60:02d}Z"


class Ports:
    """Admin ports: one report for all, or none."""

    def __init__(self) -> None:
        self.report: dict[str, Any] | None = None
        self.exposition: bytes | None = None
        self.metrics_reads = 0
        self.reports: dict[str, dict[str, Any]] = {}
        """Of single pods, by name."""
        self.warmup_reads = 0
        self.orders: list[tuple[str, str]] = []
        self.unreachable = ""
        """Why orders do not arrive."""
        self.fetched: dict[str, Any] | None = None

    async def metrics(self, pod: Pod) -> bytes:
        self.metrics_reads += 1
        if self.exposition is None:
            raise Unreachable(f"pod {pod.name}: no answer")
        return self.exposition

    async def progress(self, pod: Pod) -> bytes:
        if self.fetched is None:
            raise Unreachable(f"pod {pod.name}: no answer")
        return json.dumps(self.fetched).encode()

    async def order(self, pod: Pod, path: str) -> None:
        self.orders.append((pod.name, path))
        if self.unreachable:
            raise Unreachable(f"pod {pod.name}: {self.unreachable}")

    async def warmup(self, pod: Pod) -> bytes:
        self.warmup_reads += 1
        if pod.name in self.reports:
            return json.dumps(self.reports[pod.name]).encode()
        if self.report is None:
            raise Unreachable(f"pod {pod.name}: no answer")
        return json.dumps(self.report).encode()


class World:
    """A cluster with one service, and an operator whose lists are done."""

    def __init__(
        self, cluster: FakeCluster | None = None, ports: Ports | None = None, clock: StillClock | None = None
    ) -> None:
        self.cluster, self.ports = cluster or FakeCluster(), ports or Ports()
        self.store, self.clock = Store(), clock or StillClock()
        self.meters = Meters.make()
        self.warmups = Warmups(self.ports, clock=self.clock.monotonic)
        self.queue = KeyQueue()
        self.advisor = LadderAdvisor(self.ports, self.store, self.clock, self.queue.add)
        self.informer = Informer(self.store, self.queue, self.warmups.forget)
        self.discovery = FakeDiscovery()
        self.optional = OptionalKinds(self.discovery, self.cluster, self.informer)
        self.reconciler = self.make_reconciler()

    def make_reconciler(self, **installed: Any) -> Reconciler:
        return Reconciler(
            self.cluster,
            self.warmups,
            self.store,
            self.meters,
            self.clock,
            self.optional,
            replace(INSTALLED, **{"prometheus": PROMETHEUS, **installed}),
            self.advisor,
            DownloadProgress(self.ports, self.clock),
            WeightsSender(self.ports, self.warmups, self.clock, self.meters),
        )

    def successor(self) -> "World":
        """The next operator over the same cluster and pods, which knows nothing yet."""
        return World(self.cluster, self.ports)

    async def relist(self) -> None:
        await fill(self.cluster, self.informer, (), self.optional.watched)

    async def reconcile(self) -> float | None:
        """A look at the service, so long after the last that a status may be written."""
        self.clock.between += MOMENT_SECONDS
        return await self.reconciler.reconcile(KEY)

    @property
    def put_back(self) -> dict[str, float]:
        """Drift corrections by kind, of those that there were."""
        name = "graphpod_operator_drift_corrections_total"
        samples = [sample for family in self.meters.registry.collect() for sample in family.samples]
        return {one.labels["kind"]: one.value for one in samples if one.name == name and one.value}

    def condition(self, kind: str) -> tuple[str, str]:
        row = self._row(kind)
        return row["status"], row["reason"]

    def message(self, kind: str) -> str:
        return str(self._row(kind)["message"])

    def _row(self, kind: str) -> dict[str, Any]:
        return next(row for row in self.service["status"]["conditions"] if row["type"] == kind)

    def told(self, reason: str) -> list[str]:
        """The messages of the events of this reason."""
        return [event["message"] for event in self.cluster.events if event["reason"] == reason]

    @property
    def service(self) -> dict[str, Any]:
        """The InferenceService as it is stored."""
        return self.cluster.objects[Resource.InferenceService, NAMESPACE, "demo"]

    @property
    def deployment(self) -> dict[str, Any]:
        """Its Deployment as it is stored."""
        return self.cluster.objects[Resource.Deployment, NAMESPACE, "demo"]

    def write(self, resource: Resource, manifest: dict[str, Any]) -> None:
        """Somebody writes an object, and the operator hears of it."""
        self.informer.changed(resource, self.cluster.put(resource, manifest))

    def put_pod(self, **made: Any) -> None:
        """A pod of the planned configuration is there, or changes, and the operator hears of it."""
        self.write(Resource.Pod, pod(config_hash=HASH, **made))

    async def settle(self) -> None:
        """Some looks, each after a list: in the end nothing but status is written."""
        for _ in range(4):
            await self.relist()
            await self.reconcile()

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.cluster.writes]

    async def edit(self, **spec: Any) -> None:
        """Somebody changes the spec, and the operator hears of it."""
        before = self.service
        manifest = inference_service(**spec)
        manifest["metadata"]["generation"] = before["metadata"]["generation"] + 1
        self.cluster.put(Resource.InferenceService, {**manifest, "status": before.get("status", {})})
        await self.relist()
