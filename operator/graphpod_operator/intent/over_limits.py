"""Resources that a Pod cannot have as they are written: the API server refuses the Deployment, the CRD does not. Pure.

Rules from `ValidateResourceRequirements` of `k8s.io/kubernetes/pkg/apis/core/validation/validation.go`.
"""

from __future__ import annotations

from typing import NamedTuple

from graphpod_operator.api import quantity
from graphpod_operator.api.names import GPU
from graphpod_operator.api.placement import Resources
from graphpod_operator.intent.resolver_input import OTHER_ACCELERATORS

STANDARD = ("cpu", "memory", "ephemeral-storage")
"""Resources of a container that have no domain in their name, besides huge pages."""
_HUGE_PAGES = "hugepages-"


class Misfit(NamedTuple):
    """A request or limit that no container can have, with its amount, and the next step."""

    what: str
    step: str


def over_limits(resources: Resources) -> Misfit | None:
    """The first resource that Kubernetes does not have, or request that does not fit the limit of the same name."""
    for kind, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in amounts.items():
            if name not in STANDARD and "/" not in name and not name.startswith(_HUGE_PAGES):
                what = f"spec.resources.{kind}.{name}: not a resource of a container"
                return Misfit(what, f"use {', '.join(STANDARD)}, or a name with its domain, such as {GPU}")
            if _by_limit(name) and quantity.value(amount) % 1:
                what = f"spec.resources.{kind}{_place(name)}: {amount} is not a whole number"
                return Misfit(what, "write a whole number")
    for name, asked in resources.requests.items():
        most, place = resources.limits.get(name), _place(name)
        if most is not None and quantity.value(asked) > quantity.value(most):
            what = f"spec.resources.requests{place}: {asked} is more than spec.resources.limits{place}, {most}"
            return Misfit(what, "lower the request, or raise the limit")
        if _by_limit(name) and quantity.value(asked) != quantity.value(most or 0):
            limit = "is not set" if most is None else f"is {most}"
            what = (
                f"spec.resources.requests{place}: {asked}, and spec.resources.limits{place} {limit}: Kubernetes counts "
                "devices and huge pages by their limit"
            )
            return Misfit(what, f"remove the request, and set spec.resources.limits{place}")
    return None


def _by_limit(name: str) -> bool:
    """Whether a request needs the same limit. Of devices that no engine uses, that is what there is to say."""
    device = "/" in name and "kubernetes.io/" not in name and not name.startswith(OTHER_ACCELERATORS)
    return device or name.startswith(_HUGE_PAGES)


def _place(name: str) -> str:
    return f"[{name}]" if "/" in name else f".{name}"
