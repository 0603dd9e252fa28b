"""What a step over drafts gave: a run of one or more tokens for each sequence."""

from collections.abc import Sequence as List
from dataclasses import dataclass

from torch import Tensor

from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.schedule.drafting import DraftsYielded
from graphpod_runtime.wire.messages import Logprob


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of the entries of one batch."""

    widths: tuple[int, ...]
    """Rows of each entry."""
    taken: Tensor
    """int64 [entries, width + 2]: as `advance` gives it."""
    proposed: Tensor | None
    """bool [entries]: whether there were drafts to speak of; None: for no entry."""
    nodes: Tensor | None = None
    """int64 [entries, longest run]: behind which rows of an entry its tokens are; None: behind the first ones."""

    def copied(self) -> "Runs":
        """On its way to the host."""
        proposed, nodes = (None if part is None else _sent(part) for part in (self.proposed, self.nodes))
        return Runs(self.widths, _sent(self.taken), proposed, nodes)

    def landed(self, answers: List[Logprob | None]) -> DraftsYielded:
        """From the host. `answers`: of every row, or of none."""
        taken = self.taken.tolist()
        runs = [tuple(row[: row[-1] + 1]) for row in taken]
        tokens, more = [run[0] for run in runs], tuple(run[1:] for run in runs)
        found = [False] * len(runs) if self.proposed is None else self.proposed.tolist()
        drafted = tuple(row[-2] if any else None for row, any in zip(taken, found, strict=True))
        if not answers:
            return DraftsYielded(tokens, more=more, drafted=drafted)
        firsts = [sum(self.widths[:entry]) for entry in range(len(runs))]
        nodes = [range(len(run)) for run in runs] if self.nodes is None else self.nodes.tolist()
        scored = [
            [answers[first + node] for _, node in zip(run, own, strict=False)]
            for first, run, own in zip(firsts, runs, nodes, strict=True)
        ]
        return DraftsYielded(
            tokens,
            tuple(one[0] for one in scored),
            more=more,
            more_answers=tuple(tuple(one[1:]) for one in scored),
            drafted=drafted,
        )


def _sent(part: Tensor) -> Tensor:
    return part.to(HOST, non_blocking=True, copy=True)
