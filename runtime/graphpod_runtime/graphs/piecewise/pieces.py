"""A model's body split at attention, into pieces that run one after the other: what Piecewise runs.

It is a Body. Graphs are captured from it as from the model's own code (`breakable.py`: a break ends a segment),
so one primitive, one arena and one self-check serve both. No guard of a compiler stands between a batch and its replay:
the graph was split once for every size, so a replay cannot trace again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from graphpod_runtime.base.model_body import Attend

Piece = Callable[..., tuple[Tensor, ...]]
"""One stretch of traced operators: tensors -> fresh tensors."""

HIDDEN, POSITIONS = ".hidden", ".positions"
"""Sources: the two arguments of a body. Other sources are names of its parameters and buffers."""


@dataclass(frozen=True, slots=True)
class PieceStep:
    """A step: the piece of this hash over values, its results as values. No later step reads `last`."""

    piece: str
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    last: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AttentionStep:
    """A step: attention of `layer` over the values q, k, v, its result a value. No later step reads `last`."""

    layer: int
    arguments: tuple[int, ...]
    result: int
    last: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PieceInput:
    """What an input of a piece is. Sizes and strides in elements; those that are no numbers are made of `rows`, the
    number of tokens.
    """

    dtype: torch.dtype
    sizes: tuple[int | str, ...]
    strides: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class SplitGraph:
    """Values are numbered: first the inputs, one for each of `sources`, then what steps make.

    `results` is what the body returns, each tensor replaced by its value's number.
    """

    sources: tuple[str, ...]
    steps: tuple[PieceStep | AttentionStep, ...]
    results: Any
    pieces: dict[str, fx.GraphModule]
    """By hash. Each takes tensors and returns a tuple of them."""
    inputs: dict[str, tuple[PieceInput, ...]]
    """Of each piece, by its hash."""


class SplitBody:
    """The Body that `graph` is, its pieces run by `pieces` (by hash), over `members` of the traced body (by name)."""

    def __init__(self, graph: SplitGraph, pieces: Mapping[str, Piece], members: Mapping[str, Tensor]) -> None:
        self._steps, self._results = graph.steps, graph.results
        self._pieces = pieces
        self._members = {
            number: members[source] for number, source in enumerate(graph.sources) if not source.startswith(".")
        }
        self._given = {source: number for number, source in enumerate(graph.sources) if source.startswith(".")}

    def __call__(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Any:
        """What the traced body returns: a tensor, or a tree of them."""
        values: dict[int, Tensor] = dict(self._members)
        for source, tensor in ((HIDDEN, hidden), (POSITIONS, positions)):
            if source in self._given:
                values[self._given[source]] = tensor
        for step in self._steps:
            arguments = [values[number] for number in step.arguments]
            # No value is kept beyond its last reader: it would be memory of the graph pool.
            for number in step.last:
                del values[number]
            if isinstance(step, PieceStep):
                values.update(zip(step.results, self._pieces[step.piece](*arguments), strict=True))
            else:
                values[step.result] = attend(step.layer, *arguments)
        return pytree.tree_map_only(int, values.__getitem__, self._results)


def members(body: nn.Module) -> Mapping[str, Tensor]:
    """Parameters and buffers of `body` by name."""
    return dict(body.named_parameters()) | dict(body.named_buffers())
