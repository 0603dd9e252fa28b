"""The claims that keep downloaded weights, as they were read last. They are not watched: the operator has no right to
list them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from graphpod_operator.cache.claim import Claim
from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.cluster import Cluster
from graphpod_operator.kube.resources import Resource

FRESH_SECONDS = 30.0
"""A claim is believed for so long. What the operator writes of one itself is known at once."""


@dataclass(slots=True)
class Claims:
    """Reads claims, at most once in FRESH_SECONDS each while they exist."""

    cluster: Cluster
    clock: Clock
    _known: dict[tuple[str, str], tuple[float, Claim]] = field(default_factory=dict)

    async def read(self, namespace: str, name: str) -> Claim | None:
        """A claim, or None where there is none. Raises the port's errors."""
        known = self._known.get((namespace, name))
        if known is not None and self.clock.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        raw = await self.cluster.get(Resource.PersistentVolumeClaim, namespace, name)
        if raw is None:
            self.forget(namespace, name)
            return None
        return self.take(Claim.of(raw))

    def take(self, claim: Claim) -> Claim:
        """Take in what a claim is now."""
        self._known[claim.child.namespace, claim.child.name] = self.clock.monotonic(), claim
        return claim

    def forget(self, namespace: str, name: str) -> None:
        """The claim is gone, or may be another."""
        self._known.pop((namespace, name), None)
