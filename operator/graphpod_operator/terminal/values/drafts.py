"""What speculative decoding brought to a service: its spec, and what its pods counted since they started. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphpod_operator.kube.cluster import Raw
from graphpod_operator.terminal.values.fields import mapping, text, whole
from graphpod_operator.terminal.values.scrape import ACCEPTED, PROPOSED, Scrape
from graphpod_policy.features import MOST_TREE_TOKENS
from graphpod_policy.units import count

ENOUGH = 1000
"""Draft tokens from which on their share says something."""
WORTH = 0.1
"""Share of right drafts below which speculative decoding costs more than it brings: that of GraphpodDraftsWrong."""
BRINGS = 0.5
"""Right drafts of a request in a pass from which on drafts are worth it, however small their share is: a tree has many
of which few can be right."""
ADVICE = "fewer than one draft in ten is right: remove spec.engine.speculative"


@dataclass(frozen=True, slots=True)
class Drafts:
    """`read`: pods whose counters are in the sums. Without any, both are 0."""

    method: str
    steps: int
    each: int
    """Drafts of a request in a pass."""
    read: int
    proposed: int
    accepted: int

    @classmethod
    def of(cls, raw: Raw, scrapes: Sequence[Scrape]) -> Drafts | None:
        """From a service and the scrapes of its pods; None where its spec has no speculative decoding."""
        spec = mapping(raw, "spec", "engine", "speculative")
        method = text(spec, "method")
        if method is None:
            return None
        sums = (int(sum(one.total(name) for one in scrapes)) for name in (PROPOSED, ACCEPTED))
        steps, topk = whole(spec, "steps") or 0, whole(spec, "topk") or 1
        nodes = whole(spec, "draftTokens") or min(MOST_TREE_TOKENS, steps * topk)
        return cls(method, steps, steps if topk == 1 else nodes, len(scrapes), *sums)

    @property
    def words(self) -> str:
        """One sentence without its full stop."""
        head = f"{self.method}, {self.each} a pass"
        if not self.read:
            return f"{head}; no pod's counters could be read"
        if not self.proposed:
            return f"{head}; no pass has verified any yet"
        share = f"{self.accepted / self.proposed:.0%}"
        return f"{head}; {share} of {count(self.proposed)} were right since the pods started"

    @property
    def advice(self) -> str:
        """What to change; empty where nothing is known to be wrong."""
        if self.proposed < ENOUGH:
            return ""
        share = self.accepted / self.proposed
        return ADVICE if share < WORTH and share * self.each < BRINGS else ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for `-o json`."""
        counters = {"proposedTokens": self.proposed, "acceptedTokens": self.accepted} if self.read else {}
        return {"method": self.method, "steps": self.steps, **counters}
