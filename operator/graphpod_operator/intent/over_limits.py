"""Requests that a Pod cannot have, for they are above its limits: the API server refuses the Deployment, the CRD does
not. Pure.
"""

from __future__ import annotations

from graphpod_operator.api import quantity
from graphpod_operator.api.placement import Resources


def over_limits(resources: Resources) -> str | None:
    """The first request that is above the limit of the same name, with both amounts."""
    for name, asked in resources.requests.items():
        most = resources.limits.get(name)
        if most is not None and quantity.value(asked) > quantity.value(most):
            place = f"[{name}]" if "/" in name else f".{name}"
            return f"spec.resources.requests{place}: {asked} is more than spec.resources.limits{place}, {most}"
    return None
