"""What the passes of pods asked of their ladders, from metrics: the text of `/metrics`, or Prometheus' samples.

A pod may answer anything: what is no such metric is passed over, and numbers that contradict each other are refused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from graphpod_policy import FallbackReason, Phase, Policy
from graphpod_policy.ladder.advice import LadderUse, SizeUse
from graphpod_policy.limits import MOST_SIZES
from graphpod_policy.metrics import GRAPH_ROWS

REQUESTED = "graphpod_graph_requested_rows"
REPLAYS = "graphpod_graph_size_replays_total"
PADDING = "graphpod_graph_size_padding_tokens_total"
FALLBACKS = "graphpod_graph_fallbacks_total"
MEMORY = "graphpod_graph_memory_bytes"
POLICY = "graphpod_graph_policy_info"
NAMES = (f"{REQUESTED}_bucket", f"{REQUESTED}_sum", REPLAYS, PADDING, FALLBACKS, MEMORY, POLICY)
ABOVE = (FallbackReason.SizeAboveLadder, FallbackReason.NotCaptured)
"""Reasons of passes with more rows than the largest graph."""
GAUGES = frozenset((MEMORY, POLICY))
MOST = 1 << 53
"""The largest value that is believed: floats are exact up to it."""
MOST_SAMPLES = 4096
"""Samples of NAMES of one pod: an engine has less than 1100, with as many sizes as the API allows."""

_LINE = re.compile(rb"(graphpod_graph_[a-z_]{1,64})\{([^{}]{0,1000})\} ([0-9.e+]{1,32})(?: [0-9.]{1,20})?")
_LABEL = re.compile(r'([a-z_]{1,32})="([A-Za-z0-9.+_-]{0,64})"')
_WANTED = frozenset(name.encode() for name in NAMES)


class NoLadderMetrics(ValueError):
    """The metrics say nothing of ladders, or contradict themselves; the message says which."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series now."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class PhaseUse:
    """One phase of a pod: the policy it runs, the passes it served, and the bytes that its graphs hold."""

    policy: Policy
    use: LadderUse
    memory_bytes: int = 0


@dataclass(slots=True)
class _Phase:
    """What has been found of a phase."""

    policy: Policy | None = None
    below: dict[float, int] = field(default_factory=dict)
    """Passes by upper bound of their rows, cumulative."""
    rows: int = 0
    replays: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    padding: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    above: int = 0
    memory_bytes: int = 0


def samples(text: bytes) -> Iterator[Sample]:
    """The samples of NAMES in an exposition. Raises NoLadderMetrics where there are more than an engine has."""
    found = 0
    for line in text.split(b"\n"):
        match = _LINE.fullmatch(line.rstrip()) if line.startswith(b"graphpod_graph_") else None
        if match is None or match[1] not in _WANTED:
            continue
        if (found := found + 1) > MOST_SAMPLES:
            raise NoLadderMetrics(f"more than {MOST_SAMPLES} series of ladders")
        try:
            yield Sample(match[1].decode(), dict(_LABEL.findall(match[2].decode("ascii", "replace"))), float(match[3]))
        except ValueError:
            continue


def phase_uses(given: Iterable[Sample]) -> dict[Phase, PhaseUse]:
    """Each phase of one pod. Raises NoLadderMetrics unless both are there and their numbers can be."""
    phases = {phase: _Phase() for phase in Phase}
    for sample in given:
        if sample.labels.get("phase") in phases and 0 <= sample.value <= MOST:
            _take(phases[Phase(sample.labels["phase"])], sample)
    return {phase: _use(phase, found) for phase, found in phases.items()}


def together(uses: Iterable[PhaseUse]) -> PhaseUse | None:
    """The passes of several pods, of those with the ladder that most passes ran on; memory is the largest of a pod.
    None without any.
    """
    by_ladder: dict[tuple[Policy, tuple[int, ...]], list[PhaseUse]] = defaultdict(list)
    for one in uses:
        by_ladder[one.policy, one.use.ladder].append(one)
    alike = max(by_ladder.values(), key=lambda group: sum(one.use.passes for one in group), default=None)
    if alike is None:
        return None
    first = alike[0].use
    sizes = tuple(
        SizeUse(rows[0].size, sum(one.replays for one in rows), sum(one.padding for one in rows))
        for rows in zip(*(one.use.sizes for one in alike), strict=True)
    )
    requested = tuple(map(sum, zip(*(one.use.requested for one in alike), strict=True)))
    rows, above = sum(one.use.rows for one in alike), sum(one.use.above for one in alike)
    return PhaseUse(
        alike[0].policy,
        LadderUse(first.phase, sizes, requested, rows, above),
        max(one.memory_bytes for one in alike),
    )


def _take(phase: _Phase, sample: Sample) -> None:
    labels, value = sample.labels, int(sample.value)
    if sample.name == POLICY and value and labels.get("effective") in set(Policy):
        phase.policy = Policy(labels["effective"])
    elif sample.name == MEMORY:
        phase.memory_bytes += value
    elif sample.name == f"{REQUESTED}_sum":
        phase.rows += value
    elif sample.name == f"{REQUESTED}_bucket":
        try:
            phase.below[float(labels.get("le", ""))] = value
        except ValueError:
            return
    elif sample.name == FALLBACKS and labels.get("reason") in ABOVE:
        phase.above += value
    elif (size := labels.get("size", "")).isdecimal() and len(size) < 10:
        if sample.name == REPLAYS:
            phase.replays[int(size)] += value
        elif sample.name == PADDING:
            phase.padding[int(size)] += value


def _use(phase: Phase, found: _Phase) -> PhaseUse:
    if found.policy is None or not found.below:
        raise NoLadderMetrics(
            f"{REQUESTED} of {phase} is missing: this engine does not count what passes ask of a ladder"
        )
    if len(found.replays) > MOST_SIZES:
        raise NoLadderMetrics(f"{phase} has {len(found.replays)} sizes, more than {MOST_SIZES}")
    bounds = (*map(float, GRAPH_ROWS), float("inf"))
    if found.below.keys() != set(bounds):
        raise NoLadderMetrics(f"{REQUESTED} of {phase} has other buckets than this version of graphpod")
    requested, under = [], 0
    for bound in bounds:
        requested.append(found.below[bound] - under)
        under = found.below[bound]
    sizes = tuple(SizeUse(size, found.replays[size], found.padding[size]) for size in sorted(found.replays))
    try:
        use = LadderUse(phase, sizes, tuple(requested), found.rows, found.above)
    except ValueError as error:
        raise NoLadderMetrics(f"{phase}: {error}") from error
    return PhaseUse(found.policy, use, found.memory_bytes)
