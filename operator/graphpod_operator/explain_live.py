"""A service as a cluster has it: planned, running, and what a newer table of rules would change. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator.explain import Explanation
from graphpod_policy import Phase


@dataclass(frozen=True, slots=True)
class LivePhase:
    """One phase of a live service; `adopted` is what the rules of this program plan for its spec."""

    phase: Phase
    planned: str
    effective: str | None
    adopted: str


@dataclass(frozen=True, slots=True)
class Live:
    """What status says, beside what this program's rules say."""

    phases: tuple[LivePhase, ...]
    captured: str
    revision: str
    config_hash: str | None
    adopts: bool
    """Whether adopting this program's rules would change the engine's configuration."""


def live(explanation: Explanation) -> Live | None:
    """What the status in the manifest says; None when it has none of a plan."""
    status = explanation.manifest.raw.get("status") or {}
    graph: Mapping[str, Any] | None = status.get("graph")
    if not graph:
        return None
    phases = tuple(
        LivePhase(
            phase,
            graph[phase.value]["planned"],
            graph[phase.value].get("effective"),
            explanation.plan.phases[phase].planned.value,
        )
        for phase in Phase
    )
    config_hash = graph.get("configHash")
    return Live(
        phases=phases,
        captured=graph["captured"],
        revision=graph["resolverRevision"],
        config_hash=config_hash,
        adopts=config_hash is not None and config_hash != explanation.config_hash,
    )


def as_plain(found: Live, explanation: Explanation) -> dict[str, Any]:
    """Plain values, for `-o json` and `-o yaml`."""
    rows = {
        row.phase.value: {"planned": row.planned, "effective": row.effective, "adopted": row.adopted}
        for row in found.phases
    }
    return {
        **rows,
        "captured": found.captured,
        "resolverRevision": found.revision,
        "configHash": found.config_hash,
        "adopting": {
            "resolverRevision": explanation.plan.resolver_revision,
            "configHash": explanation.config_hash,
            "changes": found.adopts,
        },
    }


def live_text(found: Live, explanation: Explanation) -> str:
    """The live part as text, ending with a newline."""
    lines = (
        "In the cluster",
        *(f"  {row.phase:<9} planned {row.planned}, running {row.effective or 'nothing yet'}" for row in found.phases),
        f"  captured  {found.captured}, configuration {found.config_hash or 'none'}, rules {found.revision}",
        _adopting(found, explanation),
    )
    return "\n".join(lines) + "\n"


def _adopting(found: Live, explanation: Explanation) -> str:
    mine = explanation.plan.resolver_revision
    if not found.adopts:
        same = "the same rules" if mine == found.revision else f"the rules {mine}"
        return f"  Adopting {same} would change nothing in the engine's configuration."
    changed = [f"{row.phase} {row.planned} → {row.adopted}" for row in found.phases if row.planned != row.adopted]
    what = ", ".join(changed) if changed else "sizes or other settings, no policy"
    return (
        f"  Adopting the rules {mine} would give configuration {explanation.config_hash} ({what}) "
        "and replace every pod, one after the other."
    )
