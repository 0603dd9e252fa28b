"""Advice on a ladder from the passes it served: sizes that no pass took, rows lost to padding, and a better ladder.

What a pass asks is its rows before padding. `graphpod_graph_requested_rows` counts passes by buckets of rows. A ladder
whose sizes are bounds of those buckets takes whole buckets, so the rows that it pads are known exactly:
Σ size × passes that it takes, less Σ rows. Only such ladders are advised.

The optimum is found by a dynamic program over sizes: f(k, j) = min over i of f(k-1, i) + size_j × passes in (i, j], the
optimal quantisation of a histogram on a line (X. Wu, "Optimal quantization by matrix searching", J. Algorithms 12,
1991). Its cost obeys the quadrangle inequality, so that the best i rises with j and k: B × (B + k) steps for B bounds
(F. Yao, "Efficient dynamic programming using quadrangle inequalities", STOC 1980).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise

from graphpod_policy.enums import Phase
from graphpod_policy.ladder.ladder import Ladder
from graphpod_policy.metrics import GRAPH_ROWS
from graphpod_policy.rules import GATES
from graphpod_policy.rules.gates import PADDING_GATE, PADDING_RATIO, PADDING_ROWS, gaps

LEAST_PASSES = 1000
"""Passes of a phase below which nothing is advised: a share of 1 % then has a standard error of 0.3 %."""
WORTH = 0.01
"""Part of all rows computed (or of all passes, for those that PaddingGate refuses) that a better ladder must save: less
is not worth a restart of the pods."""
UNSEEN = 100
"""One in so many passes is assumed to have any number of rows up to the largest size, each as likely: load changes, and
a ladder that fits only what was seen would pad the rest without limit."""


class Verdict(StrEnum):
    """What to do with a ladder."""

    NoGraphs = "NoGraphs"
    """The phase has no ladder: its policy is Disabled."""
    TooFewPasses = "TooFewPasses"
    Keep = "Keep"
    Change = "Change"


@dataclass(frozen=True, slots=True)
class SizeUse:
    """One size of a ladder: passes that its graph replayed, and rows of padding that they computed."""

    size: int
    replays: int
    padding: int


@dataclass(frozen=True, slots=True)
class LadderUse:
    """The passes of one phase, on one pod or on several with the same ladder.

    `sizes` ascend. `requested` counts passes by the buckets of GRAPH_ROWS, not cumulative, the last one above all
    bounds; `rows` is the sum of their rows. No pass in it has more rows than the largest size. `refused` are the passes
    of `requested` that no graph replayed, `above` those that had more rows than the largest size.
    """

    phase: Phase
    sizes: tuple[SizeUse, ...]
    requested: tuple[int, ...]
    rows: int
    above: int = 0

    def __post_init__(self) -> None:
        """ValueError where the numbers contradict each other."""
        if len(self.requested) != len(GRAPH_ROWS) + 1:
            raise ValueError(f"requested has {len(self.requested)} buckets, expected {len(GRAPH_ROWS) + 1}")
        if any(one.size >= other.size for one, other in pairwise(self.sizes)) or any(
            one.size < 1 for one in self.sizes
        ):
            raise ValueError("sizes must ascend without repeats from 1 or more")
        counts = (
            *self.requested,
            self.rows,
            self.above,
            *(n for one in self.sizes for n in (one.replays, one.padding)),
        )
        if min(counts) < 0:
            raise ValueError("a count is below 0")
        if self.refused < 0:
            raise ValueError(f"{self.replays} replays of {self.passes} passes")
        if not self.passes <= self.rows <= sum(map(int.__mul__, self._tops(), self.requested)):
            raise ValueError(f"{self.passes} passes cannot have had {self.rows} rows")

    @property
    def ladder(self) -> Ladder:
        """The sizes captured."""
        return tuple(one.size for one in self.sizes)

    @property
    def passes(self) -> int:
        """Passes within the ladder."""
        return sum(self.requested)

    @property
    def replays(self) -> int:
        """Passes that ran on a graph."""
        return sum(one.replays for one in self.sizes)

    @property
    def refused(self) -> int:
        """Passes within the ladder that ran eagerly."""
        return self.passes - self.replays

    @property
    def padding(self) -> int:
        """Rows of padding that were computed."""
        return sum(one.padding for one in self.sizes)

    @property
    def unused(self) -> Ladder:
        """Sizes that no pass took, without the largest, which is the limit of the ladder."""
        return tuple(one.size for one in self.sizes[:-1] if not one.replays)

    def _tops(self) -> tuple[int, ...]:
        """The most rows of a pass in each bucket."""
        largest = self.sizes[-1].size if self.sizes else 0
        return tuple(min(bound, largest) for bound in (*GRAPH_ROWS, largest))


@dataclass(frozen=True, slots=True)
class LadderAdvice:
    """What to do with the ladder of `use`. `better` has the same largest size and as many sizes (fewer where there are
    not so many bounds), so that its graphs hold as much memory: by `start.cost` a size costs the same whatever it is,
    and the largest one decides the pool. None unless the verdict is Change. `promised` are the rows of padding that
    `better` would have computed for the same passes, all of them replayed. `fewest` is the shortest ladder of this
    method that pads no more than today's did.
    """

    use: LadderUse
    verdict: Verdict
    better: Ladder | None = None
    promised: int | None = None
    fewest: Ladder | None = None

    @property
    def saved(self) -> int:
        """Rows of padding less."""
        return 0 if self.promised is None else self.use.padding - self.promised


def advice(use: LadderUse, least_passes: int = LEAST_PASSES) -> LadderAdvice:
    """The advice on a ladder, from at least `least_passes` passes."""
    if not use.sizes:
        return LadderAdvice(use, Verdict.NoGraphs)
    if use.passes < least_passes:
        return LadderAdvice(use, Verdict.TooFewPasses)
    best = ladders(use, len(use.sizes))
    better = best[-1]
    promised = padded(use, better)
    if better == use.ladder or promised is None or not _is_worth(use, promised):
        return LadderAdvice(use, Verdict.Keep)
    return LadderAdvice(use, Verdict.Change, better, promised, next(_as_good(use, best), None))


def still_good(use: LadderUse, better: Ladder, least_passes: int = LEAST_PASSES) -> bool:
    """Whether an earlier advice for the same ladder still holds: it is worth it, and the best ladder now saves less
    than WORTH more. So an advice does not change with every read.
    """
    if not use.sizes or use.passes < least_passes or not is_like(better, use.ladder):
        return False
    promised = padded(use, better)
    if promised is None or not _is_worth(use, promised):
        return False
    best = padded(use, ladders(use, len(use.sizes))[-1])
    return best is None or promised - best < WORTH * (use.rows + use.padding)


def is_like(better: Ladder, ladder: Ladder) -> bool:
    """Whether `better` may be advised in place of `ladder`: no more sizes, the same largest, and bounds otherwise."""
    bounds = frozenset(GRAPH_ROWS)
    return (
        len(better) <= len(ladder)
        and better[-1:] == ladder[-1:]
        and all(one < other for one, other in pairwise(better))
        and all(size in bounds for size in better[:-1])
    )


def padded(use: LadderUse, ladder: Ladder) -> int | None:
    """Rows of padding that `ladder`, of bounds and today's largest size, computes for the passes of `use`; None where
    PaddingGate may send some of them to the eager path.
    """
    if _is_gated(use.phase) and gaps(ladder):
        return None
    taken = (ladder[bisect_left(ladder, top)] for top in _upper(use.ladder[-1]))
    return sum(size * count for size, count in zip(taken, _counts(use), strict=True)) - use.rows


def ladders(use: LadderUse, most: int) -> tuple[Ladder, ...]:
    """For 1, 2, … up to `most` sizes the ladder of bounds that computes the fewest rows for the passes of `use` and one
    in UNSEEN others. It ends with today's largest size and, where its sizes suffice, has no gap that PaddingGate
    refuses.
    """
    tops = _upper(use.ladder[-1])
    widths = tuple(top - low for low, top in pairwise((0, *tops)))
    passes, largest = max(1, use.passes), tops[-1]
    weights = [(UNSEEN - 1) * largest * n + passes * width for n, width in zip(_counts(use), widths, strict=True)]
    return optimal(tops, weights, most, _is_gated(use.phase))


def optimal(tops: tuple[int, ...], weights: Iterable[int], most: int, gated: bool) -> tuple[Ladder, ...]:
    """For 1, 2, … up to `most` sizes of `tops` (ascending) the ladder that ends with the last of them and has the least
    Σ size × weight, where a weight in (tops[j-1], tops[j]] takes the first size that is not smaller. `gated`: before
    that, the fewest rows by which a size is too far from the one below it (PaddingGate).
    """
    summed = [0, *accumulate(weights)]
    gap = tops[-1] * summed[-1] + 1 if gated else 0
    """One row of a gap costs more than anything without."""
    furthest = [max(PADDING_RATIO * (low + 1), low + 1 + PADDING_ROWS) for low in (0, *tops)]

    def cost(low: int, top: int) -> int:
        """Of a size `tops[top-1]` above `tops[low-1]`. The gap's part is convex, which keeps the inequality."""
        size = tops[top - 1]
        return size * (summed[top] - summed[low]) + gap * max(0, size - furthest[low])

    end = len(tops)
    best = [cost(0, top) if top else 0 for top in range(end + 1)]
    choices: list[list[int]] = [[0] * (end + 1)]
    for count in range(2, min(most, end) + 1):
        row, chosen = [0] * (end + 1), [0] * (end + 1)
        upper = end - 1
        for top in range(end, count - 1, -1):
            lows = range(max(count - 1, choices[-1][top]), min(top - 1, upper) + 1)
            row[top], chosen[top] = min((best[low] + cost(low, top), low) for low in lows)
            upper = chosen[top]
        best = row
        choices.append(chosen)
    return tuple(_traced(tops, choices[: count + 1]) for count in range(len(choices)))


def _traced(tops: tuple[int, ...], choices: list[list[int]]) -> Ladder:
    """The sizes that a row of choices leads back to."""
    sizes, top = list[int](), len(tops)
    for chosen in reversed(choices):
        sizes.append(tops[top - 1])
        top = chosen[top]
    return tuple(reversed(sizes))


def _as_good(use: LadderUse, best: tuple[Ladder, ...]) -> Iterator[Ladder]:
    """Ladders with fewer sizes than today's that replay all and pad no more."""
    for ladder in best[:-1]:
        if (rows := padded(use, ladder)) is not None and rows <= use.padding:
            yield ladder


def _is_worth(use: LadderUse, promised: int) -> bool:
    return use.padding - promised >= WORTH * (use.rows + use.padding) or use.refused >= WORTH * use.passes


def _is_gated(phase: Phase) -> bool:
    return phase in GATES[PADDING_GATE].phases


def _upper(largest: int) -> tuple[int, ...]:
    """The sizes that may be advised: bounds below the largest size, and that size."""
    return (*(bound for bound in GRAPH_ROWS if bound < largest), largest)


def _counts(use: LadderUse) -> tuple[int, ...]:
    """Passes of each bucket that ends with a size of `_upper`."""
    inner = len(_upper(use.ladder[-1])) - 1
    return (*use.requested[:inner], sum(use.requested[inner:]))
