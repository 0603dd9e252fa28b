"""The operator's metrics, made from the rows of the one metric table: a name that is not there cannot be exported."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from graphpod_operator.cache.key import Key
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Store
from graphpod_operator.kube import lease
from graphpod_operator.kube.resources import CHILDREN, OPTIONAL, Resource
from graphpod_operator.telemetry.label_values import Command, Missing, Result
from graphpod_operator.telemetry.service_objectives import objectives
from graphpod_operator.watch.workqueue import KeyQueue
from graphpod_policy import BUILT_POLICIES, RESOLVER_REVISION, __version__
from graphpod_policy.metrics import BY_NAME, OBJECTIVES_NAMED, Kind, Metric, Process, of

CONTROLLER = "inferenceservice"
"""Value of the labels `controller` and `name`."""

SERVICES = "graphpod_operator_inferenceservices"
PHASES = "graphpod_operator_service_phases"
OBJECTIVES = "graphpod_operator_objective_seconds"
SKIPPED = "graphpod_operator_object_skipped"
UNLISTED = "graphpod_operator_kind_unlisted"
SKIPPED_NAMED = 64
"""Series of it at most: whoever may write an object could make any number."""
DEPTH = "workqueue_depth"
WORKERS = "controller_runtime_active_workers"
LEADING = "leader_election_master_status"
UNFINISHED = "workqueue_unfinished_work_seconds"
LONGEST = "workqueue_longest_running_processor_seconds"
DEGRADATIONS = "graphpod_operator_policy_degradations_total"
TIME_TO_READY = "graphpod_operator_time_to_ready_seconds"
METHODS = ("GET", "PATCH", "POST", "PUT", "DELETE")
"""Of requests to the API server."""
COUNTED_ON_SCRAPE = (SERVICES, PHASES, OBJECTIVES, SKIPPED, UNLISTED, DEPTH, WORKERS, UNFINISHED, LONGEST, LEADING)
"""Gauges that are counted from store, queue and Lease when asked for, so they cannot drift."""
ZEROS: dict[str, tuple[dict[str, str], ...]] = {
    "controller_runtime_reconcile_total": tuple(
        {"controller": CONTROLLER, "result": result.value} for result in Result
    ),
    "controller_runtime_reconcile_errors_total": ({"controller": CONTROLLER},),
    "controller_runtime_reconcile_time_seconds": ({"controller": CONTROLLER},),
    "workqueue_queue_duration_seconds": ({"name": CONTROLLER},),
    "workqueue_work_duration_seconds": ({"name": CONTROLLER},),
    "rest_client_request_duration_seconds": tuple({"verb": method} for method in METHODS),
    DEGRADATIONS: tuple(
        {"phase": phase.value, "planned": planned.value, "effective": weaker.value}
        for phase, policies in BUILT_POLICIES.items()
        for planned, weaker in combinations(policies, 2)
    ),
    "workqueue_adds_total": ({"name": CONTROLLER},),
    "workqueue_retries_total": ({"name": CONTROLLER},),
    "graphpod_operator_drift_corrections_total": tuple({"kind": resource.kind} for resource in CHILDREN),
    "graphpod_operator_apply_conflicts_total": tuple({"kind": resource.kind} for resource in CHILDREN),
    "graphpod_operator_warmup_reads_total": tuple({"result": result} for result in ("ok", *Missing)),
    "graphpod_operator_weights_orders_total": tuple(
        {"order": command.value, "result": result} for command in Command for result in ("ok", "unreachable")
    ),
}
"""Every series of these rows, exported from the start: the first of a kind is an increase then, as any other."""


@dataclass(frozen=True, slots=True)
class Meters:
    """The exporters, by the names of the table."""

    registry: CollectorRegistry
    _made: dict[str, Counter | Gauge | Histogram]

    @classmethod
    def make(cls) -> Meters:
        """An exporter for each of the operator's rows but those counted on scrape."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # `…_created` series are not in the table
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        rows = [row for row in of(Process.Operator) if row.name not in COUNTED_ON_SCRAPE]
        meters = cls(registry, {row.name: _exporter(row, registry) for row in rows})
        for name, series in ZEROS.items():
            for labels in series:
                meters._made[name].labels(**labels)
        meters.set("graphpod_operator_build_info", 1, version=__version__, resolver_revision=RESOLVER_REVISION)
        return meters

    def watch(
        self,
        store: Store,
        queue: KeyQueue,
        leads: Callable[[], bool],
        unlisted: Callable[[], Collection[Resource]] = frozenset,
    ) -> None:
        """Count the gauges of store, queue and Lease on every scrape, and the optional kinds whose list fails."""
        self.registry.register(_Counted(store, queue, leads, unlisted))

    def count(self, name: str, /, **labels: str) -> None:
        """Add one to a counter."""
        made = self._made[name]
        assert isinstance(made, Counter)
        (made.labels(**labels) if labels else made).inc()

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        made = self._made[name]
        assert isinstance(made, Gauge)
        (made.labels(**labels) if labels else made).set(value)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add an observation to a histogram."""
        made = self._made[name]
        assert isinstance(made, Histogram)
        (made.labels(**labels) if labels else made).observe(value)

    def text(self) -> bytes:
        """What `/metrics` answers."""
        return generate_latest(self.registry)


class _Counted(Collector):
    """Gauges counted at the moment of the scrape."""

    def __init__(
        self, store: Store, queue: KeyQueue, leads: Callable[[], bool], unlisted: Callable[[], Collection[Resource]]
    ) -> None:
        self._store = store
        self._queue = queue
        self._leads = leads
        self._unlisted = unlisted
        self._counted: dict[Key, tuple[Service, tuple[str, ...], tuple[str, ...]]] = {}
        """Of the latest scrape: by what labels each service counts. A service that changes is another object."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family for each of COUNTED_ON_SCRAPE."""
        services, phases = self._services()
        yield self._family(SERVICES, services)
        yield self._family(PHASES, phases)
        yield self._family(OBJECTIVES, self._objectives())
        yield self._family(SKIPPED, self._skipped())
        yield self._family(UNLISTED, {(kind.kind,): int(kind in self._unlisted()) for kind in OPTIONAL})
        yield self._family(DEPTH, {(CONTROLLER,): self._queue.depth})
        yield self._family(WORKERS, {(CONTROLLER,): self._queue.active})
        yield self._family(UNFINISHED, {(CONTROLLER,): sum(self._queue.busy_seconds())})
        yield self._family(LONGEST, {(CONTROLLER,): self._queue.longest_busy()})
        yield self._family(LEADING, {(lease.NAME,): int(self._leads())})

    def _services(self) -> tuple[Tally[tuple[str, ...]], Tally[tuple[str, ...]]]:
        """Of SERVICES, and of PHASES."""
        before, self._counted = self._counted, {}
        for service in self._store.services():
            known = before.get(service.key)
            if known is None or known[0] is not service:
                known = service, _labels(service.status), _standing(service.status)
            self._counted[service.key] = known
        counted = self._counted.values()
        return Tally(labels for _, labels, _ in counted), Tally(standing for _, _, standing in counted)

    def _objectives(self) -> dict[tuple[str, ...], float]:
        promised = [
            (key.namespace, key.name, found)
            for key, (service, *_) in self._counted.items()
            if (found := objectives(service.spec))
        ]
        return {
            (namespace, name, one.objective, one.bound): one.seconds
            for namespace, name, found in sorted(promised)[:OBJECTIVES_NAMED]
            for one in found
        }

    def _skipped(self) -> dict[tuple[str, ...], float]:
        places = sorted((place[0].kind, *place[1:]) for place in self._store.all_skipped())
        return dict.fromkeys(places[:SKIPPED_NAMED], 1)

    @staticmethod
    def _family(name: str, values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
        row = BY_NAME[name]
        family = GaugeMetricFamily(row.name, row.help, labels=row.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family


def _labels(status: Mapping[str, Any]) -> tuple[str, ...]:
    """How a service of this status counts: Ready, and the effective policies."""
    return _condition(status, "Ready"), _effective(status, "prefill"), _effective(status, "decode")


def _standing(status: Mapping[str, Any]) -> tuple[str, ...]:
    """How a service of this status stands: its phase, empty before the first, and Available."""
    return str(status.get("phase") or ""), _condition(status, "Available")


def _condition(status: Mapping[str, Any], name: str) -> str:
    return next((row["status"] for row in status.get("conditions") or () if row["type"] == name), "Unknown")


def _effective(status: object, phase: str) -> str:
    graph = status.get("graph") or {} if isinstance(status, dict) else {}
    return str((graph.get(phase) or {}).get("effective", ""))


def _exporter(row: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if row.kind is Kind.Counter:
        return Counter(row.name, row.help, row.labels, registry=registry)
    if row.kind is Kind.Gauge:
        return Gauge(row.name, row.help, row.labels, registry=registry)
    return Histogram(row.name, row.help, row.labels, buckets=row.buckets, registry=registry)
