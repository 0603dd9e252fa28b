"""A trace cut at its split operators: a chain of pieces and breaks.

Pieces that say the same are one piece: all layers of a kind share theirs, since weights are its inputs. What is equal
is told by a hash of the graph: operators, constants, and the dtypes, shapes and strides of inputs.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from graphpod_runtime.graphs.errors import CaptureFailed
from graphpod_runtime.graphs.trace import ROWS, SPLIT_OPS, Trace

Piece = Callable[..., tuple[Tensor, ...]]
"""One stretch of traced operators: its inputs -> its results, fresh tensors."""


@dataclass(frozen=True, slots=True)
class Run:
    """A step: the piece of this hash over values, its results as values. `last` are read by no later step."""

    piece: str
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Break:
    """A step: attention of `layer` over the values q, k, v, its result a value."""

    layer: int
    arguments: tuple[int, int, int]
    result: int
    last: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Values are numbered: first the inputs, one for each of `sources` (words of `trace.py`), then what steps make.

    `results` is what the body returns, each tensor replaced by its value's number.
    """

    sources: tuple[str, ...]
    steps: tuple[Run | Break, ...]
    results: Any
    pieces: dict[str, fx.GraphModule]
    """By hash."""


def cut(trace: Trace) -> Chain:
    """`trace` as a chain. CaptureFailed when it holds what no piece can hold."""
    nodes = list(trace.graph.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    output = trace.graph.graph.output_node()
    values: dict[fx.Node, int] = {}
    sources: list[str] = []
    for node, source in zip(placeholders, trace.sources, strict=True):
        # Every symbol of the trace is the number of tokens.
        if source != ROWS or source not in sources:
            sources.append(source)
        values[node] = sources.index(source) if source == ROWS else len(sources) - 1
    count = len(sources)
    pieces: dict[str, fx.GraphModule] = {}
    steps: list[Run | Break] = []
    for group in _groups(nodes):
        if _splits(group[0]):
            (node,) = group
            layer, q, k, v = node.args
            values[node], count = count, count + 1
            steps.append(Break(layer, (values[q], values[k], values[v]), values[node], ()))  # type: ignore[arg-type, index]
            continue
        piece = _Piece(group)
        if not piece.results:
            continue
        key = piece.hash()
        pieces.setdefault(key, piece.module())
        for node in piece.results:
            values[node], count = count, count + 1
        arguments, results = (tuple(values[node] for node in part) for part in (piece.inputs, piece.results))
        steps.append(Run(key, arguments, results, ()))
    (returned,) = output.args
    numbers = [values[node] for node in returned]  # type: ignore[index, union-attr]
    tree = pytree.tree_map_only(int, lambda place: numbers[place], trace.results)
    return Chain(tuple(sources), tuple(_with_last_uses(steps, set(numbers) | set(range(len(sources))))), tree, pieces)


def _splits(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target in SPLIT_OPS


def _groups(nodes: Iterable[fx.Node]) -> Iterator[list[fx.Node]]:
    """Stretches between split operators, and each of those alone, in order."""
    group: list[fx.Node] = []
    for node in nodes:
        if node.op in ("placeholder", "output"):
            continue
        if not _splits(node):
            group.append(node)
            continue
        if group:
            yield group
        yield [node]
        group = []
    if group:
        yield group


class _Piece:
    """One stretch as a graph of its own."""

    def __init__(self, group: Sequence[fx.Node]) -> None:
        inside = set(group)
        self.results = [node for node in group if _is_tensor(node) and any(user not in inside for user in node.users)]
        self.inputs: list[fx.Node] = []
        self._graph = fx.Graph()
        self._copies: dict[fx.Node, fx.Node] = {}
        ordered = self._with_numbers(group)
        for node in ordered:
            for argument in node.all_input_nodes:
                if argument not in inside and argument not in ordered and argument not in self.inputs:
                    self.inputs.append(argument)
        for index, node in enumerate(self.inputs):
            if node.op != "placeholder" and not _is_tensor(node):
                raise CaptureFailed(f"the trace hands {node} across a break, which is not a tensor")
            self._copies[node] = self._graph.placeholder(f"input_{index}")
        for node in ordered:
            if node.op == "get_attr":
                raise CaptureFailed(f"the trace holds the constant tensor {node.target}: make it a registered buffer")
            arguments, keywords = fx.map_arg((node.args, node.kwargs), self._copies.__getitem__)
            self._copies[node] = self._graph.create_node(node.op, node.target, arguments, keywords)  # type: ignore[arg-type]
        self._graph.output(tuple(self._copies[node] for node in self.results))
        for node, copy in self._copies.items():
            copy.meta["example_value"] = node.meta.get("example_value")

    def _with_numbers(self, group: Sequence[fx.Node]) -> list[fx.Node]:
        """`group`, and before it the numbers that it takes from earlier stretches, computed again."""
        needed: dict[fx.Node, None] = {}

        def need(node: fx.Node) -> None:
            if node.op == "call_function" and isinstance(node.meta.get("example_value"), torch.SymInt | int):
                for argument in node.all_input_nodes:
                    need(argument)
                needed.setdefault(node)

        for node in group:
            for argument in node.all_input_nodes:
                if argument not in group:
                    need(argument)
        return [*needed, *group]

    def module(self) -> fx.GraphModule:
        self._graph.lint()
        return fx.GraphModule(torch.nn.Module(), self._graph)

    def hash(self) -> str:
        """Of what it computes, whatever names the trace gave."""
        inputs = [_described(node.meta["example_value"]) for node in self.inputs]
        return sha256("\n".join([*inputs, str(self._graph)]).encode()).hexdigest()[:16]


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), Tensor)


def _described(value: object) -> str:
    """An input's kind. A size that is not a number is the number of tokens, or made from it alone."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    sizes, strides = (
        [size if isinstance(size, int) else "rows" for size in part] for part in (value.shape, value.stride())
    )
    return f"{value.dtype} {value.device} {sizes} {strides}"


def _with_last_uses(steps: Sequence[Run | Break], kept: set[int]) -> Iterator[Run | Break]:
    """`steps`, each with the values that may be forgotten once it has them; `kept` never are."""
    last: dict[int, int] = {}
    for index, step in enumerate(steps):
        last |= dict.fromkeys(step.arguments, index)
    for index, step in enumerate(steps):
        dying = tuple(value for value in step.arguments if last[value] == index and value not in kept)
        if isinstance(step, Run):
            yield Run(step.piece, step.arguments, step.results, dying)
        else:
            yield Break(step.layer, step.arguments, step.result, dying)
