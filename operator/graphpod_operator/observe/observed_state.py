"""The observed state of a service: what the cluster and its pods say of it at the moment they are asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphpod_operator.api.status import LadderAdviceStatus
from graphpod_operator.cache.child import Child, DeploymentRollout
from graphpod_operator.cache.fetch_report import FetchReport
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.route_status import RouteStatus
from graphpod_operator.cache.store import Store
from graphpod_operator.kube.cluster import ApiError
from graphpod_operator.kube.resources import AUTOSCALERS, OPTIONAL, Resource, workload_kind
from graphpod_operator.observe.download_progress import DownloadProgress
from graphpod_operator.observe.ladder_advisor import LadderAdvisor
from graphpod_operator.observe.warmup_poller import Warmups
from graphpod_operator.observe.warmup_report import NoReading, Reading
from graphpod_operator.telemetry.metrics import Meters


@dataclass(frozen=True, slots=True)
class Observed:
    """What the cluster says of a service. `readings` holds an entry for each running pod, by pod uid."""

    rollout: DeploymentRollout | None
    pods: tuple[Pod, ...]
    readings: Mapping[str, Reading | NoReading]
    optional: frozenset[Resource] = frozenset()
    """The optional kinds of which the service has its object."""
    autoscaler: Child | None = None
    route: RouteStatus | None = None
    held_up: Mapping[Resource, str] = field(default_factory=dict)
    """The optional kinds of which it could not be written, with the API server's words."""
    advice: LadderAdviceStatus | None = None
    """On the ladders of the configuration that was asked about."""
    progress: Mapping[str, FetchReport] = field(default_factory=dict)
    """What the pods of its downloads report, by pod uid."""
    look_again: float | None = None
    """Seconds until the pods are read again to see whether a Prometheus scrapes them, or where their weights are; None:
    they are not."""
    leaving: tuple[Pod, ...] = ()
    """Pods for whose room a new one may wait: they drain, or have just gone."""
    unsent: Mapping[str, str] = field(default_factory=dict)
    """Why an order about its weights did not reach a pod, by pod uid."""


def _soonest(*pauses: float | None) -> float | None:
    return min((one for one in pauses if one is not None), default=None)


@dataclass(frozen=True, slots=True)
class Observer:
    """Reads the pods' warm-ups, and the store after that."""

    warmups: Warmups
    store: Store
    meters: Meters
    advisor: LadderAdvisor
    downloads: DownloadProgress

    async def observe(
        self,
        key: Key,
        held_up: Mapping[Resource, ApiError],
        again: bool,
        config_hash: str | None = None,
        fetching: Iterable[Pod] = (),
    ) -> Observed:
        """Read the pods, and report what is then. `held_up` are the kinds that could not be written; `again`: also pods
        whose warm-up has ended are asked. `config_hash` is of the configuration that is planned, `fetching` are its
        pods that download.
        """
        service = self.store.service(key)
        monitor = self.store.child(Resource.PodMonitor, key.namespace, key.name)
        scrapes = monitor is not None and service is not None and is_ours(service, monitor)
        readings = await self.warmups.read(self.store.pods(key), again=again, scrapes=scrapes)
        progress = await self.downloads.read(fetching)
        for answer in readings.values():
            result = answer.cause.value if isinstance(answer, NoReading) else "ok"
            self.meters.count("graphpod_operator_warmup_reads_total", result=result)
        # the pods may have changed during the reads: report on what is now
        where = key.namespace, key.name
        service = self.store.service(key)
        made = {
            child.resource: child
            for child in self.store.workloads(key)
            if service is not None and child.controller is not None and child.controller.uid == service.uid
        }
        # while the pods pass from one kind to the other, the spec's counts
        workload = made.get(workload_kind(service.nodes if service is not None else 1))
        workload = workload or next(iter(made.values()), None)

        def ours_of(kind: Resource) -> Child | None:
            child = self.store.child(kind, *where)
            return child if child is not None and service is not None and is_ours(service, child) else None

        route = ours_of(Resource.HTTPRoute)
        return Observed(
            rollout=workload.rollout if workload is not None else None,
            pods=self.store.pods(key) if made else (),
            readings=readings,
            optional=frozenset(kind for kind in OPTIONAL if ours_of(kind)),
            autoscaler=next(filter(None, map(ours_of, AUTOSCALERS)), None),
            route=route.route if route is not None else None,
            held_up={kind: str(error) for kind, error in held_up.items()},
            advice=self.advisor.standing(service, config_hash) if service is not None else None,
            progress=progress,
            look_again=_soonest(
                self.warmups.scrape_pause(self.store.pods(key)) if scrapes else None,
                self.warmups.weights_pause(self.store.pods(key)),
            ),
        )
