"""Piecewise: the model's body as a chain of traced pieces with attention between them.

The chain is a Body. Graphs are captured from it as from the model's own code (`breakable.py`: a break ends a segment),
so one primitive, one arena and one self-check serve both. No guard of Dynamo stands between a batch and its replay: the
trace was made once for every size, so a replay cannot trace anew.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from graphpod_runtime.graphs.pieces import Chain, Piece, Run, cut
from graphpod_runtime.graphs.trace import HIDDEN, POSITIONS, ROWS, members, trace
from graphpod_runtime.models.base import Attend


class PiecewiseBody:
    """A Body made of `chain`, its pieces run by `pieces` (by hash), over the members of the traced body."""

    def __init__(self, chain: Chain, pieces: Mapping[str, Piece], members: Mapping[str, Tensor]) -> None:
        self.chain = chain
        self._pieces = pieces
        self._inputs: list[Tensor | None] = [members.get(source) for source in chain.sources]

    def __call__(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Any:
        """What the traced body returns: a tensor, or a tree of them."""
        given = {ROWS: hidden.shape[0], HIDDEN: hidden, POSITIONS: positions}
        values: dict[int, Any] = {
            number: given.get(source, member)
            for number, (source, member) in enumerate(zip(self.chain.sources, self._inputs, strict=True))
        }
        for step in self.chain.steps:
            # Nothing here keeps a value beyond its last reader: it would be memory of the graph pool.
            arguments = [values[number] for number in step.arguments]
            for number in step.last:
                del values[number]
            if isinstance(step, Run):
                values.update(zip(step.results, self._pieces[step.piece](*arguments), strict=True))
            else:
                values[step.result] = attend(step.layer, *arguments)
            del arguments
        return pytree.tree_map_only(int, values.__getitem__, self.chain.results)
