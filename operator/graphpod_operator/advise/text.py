"""Advice as text of 80 columns, and as plain values. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator.advise.reader import Read
from graphpod_operator.api.names import SHORT_NAME
from graphpod_policy import Phase
from graphpod_policy.ladder.advice import LEAST_PASSES, WORTH, LadderAdvice, LadderUse, Verdict, advice
from graphpod_policy.ladder.ladder import Ladder
from graphpod_policy.rules import GATES
from graphpod_policy.rules.gates import PADDING_GATE, closing
from graphpod_policy.units import duration, size

WIDTH = 80
INDENT = 16
MOST_WASTEFUL = 3
"""Sizes that are named for their padding."""

ROWS = {Phase.Prefill: "tokens", Phase.Decode: "sequences"}

BRIEF: dict[Verdict, str] = {
    Verdict.NoGraphs: "no graphs",
    Verdict.TooFewPasses: "too few passes for advice",
    Verdict.Keep: "keep",
    Verdict.Change: "change",
}


@dataclass(frozen=True, slots=True)
class Advised:
    """The advice on both phases of a service."""

    namespace: str
    name: str
    read: Read
    phases: Mapping[Phase, LadderAdvice]

    @classmethod
    def of(cls, namespace: str, name: str, read: Read) -> Advised:
        """The advice from what was read."""
        return cls(namespace, name, read, {phase: advice(found.use) for phase, found in read.uses.items()})

    @property
    def changes(self) -> dict[Phase, LadderAdvice]:
        """The phases with a better ladder."""
        return {phase: said for phase, said in self.phases.items() if said.verdict is Verdict.Change}

    @property
    def sizes(self) -> dict[str, list[int]]:
        """For spec.graph.sizes."""
        return {phase.value: list(said.better or ()) for phase, said in self.changes.items()}


def text(advised: Advised) -> str:
    """The advice, ending with a newline."""
    read = advised.read
    lines = [_verdict(advised), ""]
    for phase, said in advised.phases.items():
        lines += [*_phase(phase, said, read), ""]
    if sizes := advised.sizes:
        patch = json.dumps({"spec": {"graph": {"sizes": sizes}}}, separators=(",", ":"))
        lines += ["To apply it (the pods restart and capture the new sizes):", ""]
        lines += [f"  kubectl -n {advised.namespace} patch {SHORT_NAME} {advised.name} --type merge -p '{patch}'", ""]
        lines += ["or in the manifest:", "", "  spec:", "    graph:", "      sizes:"]
        lines += [f"        {phase}: {json.dumps(ladder)}" for phase, ladder in sizes.items()]
        lines += [""]
    since = "since its start" if read.seconds is None else f"in the last {duration(read.seconds)}, by Prometheus"
    pods = f"{len(read.pods)} pods" if len(read.pods) > 1 else f"pod {read.pods[0]}"
    lines += textwrap.wrap(f"Read from {pods} {since.replace('its', 'their') if len(read.pods) > 1 else since}.", WIDTH)
    lines += [line for trouble in read.troubles for line in textwrap.wrap(f"Not read: {trouble}", WIDTH)]
    return "\n".join(lines) + "\n"


def as_plain(advised: Advised) -> dict[str, Any]:
    """Plain values, with raw numbers."""
    return {
        "namespace": advised.namespace,
        "name": advised.name,
        "pods": list(advised.read.pods),
        "seconds": advised.read.seconds,
        "phases": {phase.value: _plain_phase(said, advised.read) for phase, said in advised.phases.items()},
        "patch": {"spec": {"graph": {"sizes": advised.sizes}}} if advised.sizes else None,
        "troubles": list(advised.read.troubles),
    }


def _verdict(advised: Advised) -> str:
    name, changes = f"{SHORT_NAME}/{advised.name}", advised.changes
    if changes:
        saved, lost = sum(said.saved for said in changes.values()), sum(said.use.padding for said in changes.values())
        if saved > 0:
            return f"{name}: other {' and '.join(changes)} sizes save {saved} of {lost} rows of padding"
        return f"{name}: other {' and '.join(changes)} sizes keep all passes on graphs"
    verdicts = {said.verdict for said in advised.phases.values()}
    if Verdict.Keep in verdicts:
        return f"{name}: keep the ladders"
    because = "too little was served" if Verdict.TooFewPasses in verdicts else "it runs without graphs"
    return f"{name}: no advice, because {because}"


def _phase(phase: Phase, said: LadderAdvice, read: Read) -> Iterator[str]:
    use, found = said.use, read.uses[phase]
    yield f"{phase.upper():<{INDENT}}{found.policy}: {BRIEF[said.verdict]}"
    if said.verdict is Verdict.NoGraphs:
        return
    if said.verdict is Verdict.TooFewPasses:
        yield from _row("passes", f"{use.passes}; an advice needs {LEAST_PASSES}")
        return
    yield from _row("passes", f"{use.passes} of {use.rows / use.passes:.1f} {ROWS[phase]} on average")
    yield from _row("padding", f"{use.padding} rows, {_share(use.padding, use.rows)} of the rows computed")
    if wasteful := sorted((one for one in use.sizes if one.padding), key=lambda one: -one.padding)[:MOST_WASTEFUL]:
        yield from _row(
            "lost at", ", ".join(f"size {one.size} ({one.padding} rows in {one.replays} passes)" for one in wasteful)
        )
    if use.refused:
        yield from _row("fell back", f"{use.refused} passes within the ladder ({PADDING_GATE})")
    if use.above:
        yield from _row("above", f"{use.above} passes had more than {use.ladder[-1]} {ROWS[phase]} and ran eagerly")
    limit = () if use.sizes[-1].replays else (f"{use.ladder[-1]} (kept: the limit of the ladder)",)
    yield from _row("never used", ", ".join((*map(str, use.unused), *limit)) or "none")
    yield from _row("today", _sizes(use.ladder))
    if said.better is None or said.promised is None:
        yield from _row("why", _kept(use))
        return
    yield from _row("better", _sizes(said.better))
    yield from _row("would pad", f"{said.promised} rows, {_share(said.promised, use.rows)}, for the same passes")
    bytes_now = f" ({size(found.memory_bytes)} now)" if found.memory_bytes else ""
    amount = "as" if len(said.better) == len(use.ladder) else "less than"
    yield from _row(
        "memory",
        f"{amount} today{bytes_now}: {len(said.better)} graphs, the largest of {said.better[-1]} {ROWS[phase]}",
    )
    if said.fewest is not None:
        fewer = len(use.ladder) - len(said.fewest)
        yield from _row("or shorter", f"{_sizes(said.fewest)} pads no more than today, with {fewer} graphs fewer")


def _kept(use: LadderUse) -> str:
    """Why a ladder is kept."""
    if use.phase in GATES[PADDING_GATE].phases and (missing := closing(use.ladder)):
        return f"it has gaps that {PADDING_GATE} refuses; first add the sizes {_sizes(missing)}"
    return f"no ladder of {len(use.ladder)} sizes saves {WORTH:.0%} of the rows computed"


def _plain_phase(said: LadderAdvice, read: Read) -> dict[str, Any]:
    use, found = said.use, read.uses[said.use.phase]
    return {
        "verdict": said.verdict.value,
        "policy": found.policy.value,
        "passes": use.passes,
        "rows": use.rows,
        "padding": use.padding,
        "fellBack": use.refused,
        "aboveLadder": use.above,
        "sizes": [{"size": one.size, "replays": one.replays, "padding": one.padding} for one in use.sizes],
        "neverUsed": list(use.unused),
        "memoryBytes": found.memory_bytes,
        "better": said.better and list(said.better),
        "promisedPadding": said.promised,
        "fewest": said.fewest and list(said.fewest),
    }


def _share(padding: int, rows: int) -> str:
    return f"{padding / max(1, rows + padding):.0%}"


def _sizes(ladder: Ladder) -> str:
    return ", ".join(map(str, ladder))


def _row(name: str, value: str) -> list[str]:
    lead = f"  {name:<{INDENT - 2}}"
    return textwrap.wrap(value, WIDTH, initial_indent=lead, subsequent_indent=" " * INDENT, break_on_hyphens=False)
