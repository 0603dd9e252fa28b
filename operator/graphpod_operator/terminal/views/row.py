"""A row of `graphpod top`: a service's status, what its pods do, and what could not be read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphpod_operator.terminal.values.load import Load, load
from graphpod_operator.terminal.values.scrape import Scrape
from graphpod_operator.terminal.values.service import ServiceState

NO_SERIES = "Prometheus has no series of it; see docs/how-to/monitor.md"


@dataclass(frozen=True, slots=True)
class PodRead:
    """What one pod answered: its scrape and, of the same run of its engine, the one before; or why there is none."""

    name: str
    before: Scrape | None
    now: Scrape | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One service."""

    service: ServiceState
    load: Load | None
    pods: int | None
    """Running pods that were asked; None with Prometheus."""
    unread: int
    """Those of them that gave no scrape."""
    troubles: tuple[str, ...] = ()
    """Why, one sentence each."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for `-o json`."""
        service = self.service
        return {
            "namespace": service.namespace,
            "name": service.name,
            "phase": service.phase,
            **{
                phase.value: {"planned": policies.planned, "effective": policies.effective}
                for phase, policies in service.policies.items()
            },
            "captured": service.captured,
            "pods": service.pods,
            "load": self.load.as_dict() if self.load is not None else None,
            "podsAsked": self.pods,
            "podsUnread": self.unread,
            "troubles": list(self.troubles),
        }


def from_pods(service: ServiceState, pods: Sequence[PodRead]) -> Row:
    """The row of a service whose pods were read one by one."""
    read = [(pod.before, pod.now) for pod in pods if pod.now is not None]
    troubles = tuple(f"pod {pod.name}: {pod.trouble}" for pod in pods if pod.now is None)
    return Row(service, load(read), len(pods), len(troubles), troubles)


def from_prometheus(service: ServiceState, loads: Mapping[tuple[str, str], Load]) -> Row:
    """The row of a service whose series a Prometheus has, or has not."""
    found = loads.get((service.namespace, service.name))
    expected = any(policies.effective for policies in service.policies.values())
    return Row(service, found, None, 0, (NO_SERIES,) if found is None and expected else ())
