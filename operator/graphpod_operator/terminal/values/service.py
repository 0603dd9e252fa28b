"""What the status of an InferenceService says, for a row of the table and for the page. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphpod_operator.kube import bounds
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.terminal.values.fields import mapping, maps, text, whole
from graphpod_policy import Phase

NO_STATUS = "NoStatus"
"""In place of status.phase while no operator has written one."""
TOO_LARGE = "TooLarge"
"""In place of status.phase, of an object that is larger than the operator reads."""


@dataclass(frozen=True, slots=True)
class PhasePolicies:
    """The policies of one phase."""

    requested: str | None
    planned: str | None
    effective: str | None
    self_check: str | None
    captured: int | None
    sizes: int | None

    @property
    def is_weaker(self) -> bool:
        """Whether another policy runs than the planned one."""
        return self.effective is not None and self.planned is not None and self.effective != self.planned


@dataclass(frozen=True, slots=True)
class ServiceCondition:
    """One condition."""

    type: str
    status: str
    reason: str
    message: str
    since: str
    generation: int


@dataclass(frozen=True, slots=True)
class ServiceState:
    """An InferenceService as its status shows it."""

    namespace: str
    name: str
    generation: int
    observed: int
    """Generation that the status is about; 0 without a status."""
    phase: str
    policies: dict[Phase, PhasePolicies]
    captured: str | None
    pods: str | None
    """Pods that serve over pods wanted, such as 2/3."""
    conditions: tuple[ServiceCondition, ...]
    breach: str | None
    """Which bound the object breaks, if it does."""

    @classmethod
    def of(cls, raw: Raw) -> ServiceState:
        """Whatever stands in the object, this raises nothing: any user may have written it."""
        status = mapping(raw, "status")
        conditions = tuple(_condition(one) for one in maps(status, "conditions"))[:32]
        breach = text(raw, bounds.BREACH)
        return cls(
            namespace=text(raw, "metadata", "namespace") or "",
            name=text(raw, "metadata", "name") or "",
            generation=whole(raw, "metadata", "generation") or 0,
            observed=whole(status, "observedGeneration") or 0,
            phase=TOO_LARGE if breach else text(status, "phase") or NO_STATUS,
            policies={phase: _policies(mapping(status, "graph", phase.value)) for phase in Phase},
            captured=text(status, "graph", "captured"),
            pods=text(status, "pods"),
            conditions=conditions,
            breach=breach,
        )

    def condition(self, kind: str) -> ServiceCondition | None:
        """The condition of a type."""
        return next((one for one in self.conditions if one.type == kind), None)


def _policies(graph: Raw) -> PhasePolicies:
    return PhasePolicies(
        requested=text(graph, "requested"),
        planned=text(graph, "planned"),
        effective=text(graph, "effective"),
        self_check=text(graph, "selfCheck"),
        captured=whole(graph, "sizes", "captured"),
        sizes=whole(graph, "sizes", "planned"),
    )


def _condition(one: Any) -> ServiceCondition:
    words = {key: text(one, key) or "" for key in ("type", "status", "reason", "message")}
    since = text(one, "lastTransitionTime") or ""
    return ServiceCondition(**words, since=since, generation=whole(one, "observedGeneration") or 0)
