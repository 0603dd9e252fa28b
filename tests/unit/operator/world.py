"""A cluster in memory with one service, and the operator's parts over it."""

import json
from typing import Any

from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.store import Store
from graphpod_operator.controller.reconcile import Reconciler
from graphpod_operator.install.installation import PERMISSIVE, Installation
from graphpod_operator.install.network_access import Access
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.warmups import Unreachable, Warmups
from graphpod_operator.status.write_throttle import MOMENT_SECONDS
from graphpod_operator.telemetry.metrics import Meters
from graphpod_operator.watch.feed import Feed, fill
from graphpod_operator.watch.optional_kinds import OptionalKinds
from graphpod_operator.watch.workqueue import KeyQueue
from tests.unit.operator.cluster import FakeCluster, FakeDiscovery
from tests.unit.operator.objects import IMAGES, NAMESPACE, inference_service, planned

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

    async def warmup(self, pod: Pod) -> bytes:
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
        self.feed = Feed(self.store, self.queue, self.warmups.forget)
        self.discovery = FakeDiscovery()
        self.optional = OptionalKinds(self.discovery, self.cluster, self.feed)
        self.reconciler = self.make_reconciler()

    def make_reconciler(self, access: Access | None = None, installed: Installation = PERMISSIVE) -> Reconciler:
        return Reconciler(
            self.cluster,
            self.warmups,
            self.store,
            self.meters,
            self.clock,
            IMAGES,
            self.optional,
            PROMETHEUS,
            access,
            installed,
        )

    def successor(self) -> "World":
        """The next operator over the same cluster and pods, which knows nothing yet."""
        return World(self.cluster, self.ports)

    async def relist(self) -> None:
        await fill(self.cluster, self.feed, (), self.optional.watched)

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
        status = self.cluster.objects[Resource.InferenceService, NAMESPACE, "demo"]["status"]
        return next((row["status"], row["reason"]) for row in status["conditions"] if row["type"] == kind)

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.cluster.writes]

    async def edit(self, **spec: Any) -> None:
        """Somebody changes the spec, and the operator hears of it."""
        before = self.cluster.objects[Resource.InferenceService, NAMESPACE, "demo"]
        manifest = inference_service(**spec)
        manifest["metadata"]["generation"] = before["metadata"]["generation"] + 1
        self.cluster.put(Resource.InferenceService, {**manifest, "status": before.get("status", {})})
        await self.relist()
