"""A trace cut at its split operators into pieces and calls of attention.

Pieces that say the same are one piece: all layers of a kind share theirs, since weights are its inputs. What is equal
is decided by a hash of the graph: operators, constants, and the dtypes, shapes and strides of inputs.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from graphpod_runtime.base.errors import CaptureFailed
from graphpod_runtime.graphs.piecewise.dynamo_trace import SPLIT_OPS, Trace
from graphpod_runtime.graphs.piecewise.pieces import AttentionStep, PieceInput, PieceStep, SplitGraph


def cut(trace: Trace) -> SplitGraph:
    """`trace`, split. CaptureFailed when it holds what no piece can hold."""
    nodes = list(trace.graph.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    values: dict[fx.Node, int] = {}
    # Those that are handed through first.
    sources = [leaf for leaf in pytree.tree_leaves(trace.results) if isinstance(leaf, str)]
    for node, source in zip(placeholders, trace.sources, strict=True):
        if source is not None:
            values[node] = len(sources)
            sources.append(source)
    count = len(sources)
    pieces: dict[str, fx.GraphModule] = {}
    inputs: dict[str, tuple[PieceInput, ...]] = {}
    steps: list[PieceStep | AttentionStep] = []
    for group in _groups(nodes):
        if _splits(group[0]):
            layer, *heads = group[0].args
            values[group[0]], count = count, count + 1
            steps.append(AttentionStep(layer, tuple(values[node] for node in heads), values[group[0]]))  # type: ignore[arg-type, index]
            continue
        made = _made(group)
        if not made:
            # Sizes only, which the pieces that use them compute again.
            continue
        piece = _Piece(group, made)
        key = piece.hash()
        if key not in pieces:
            pieces[key], inputs[key] = piece.module(), piece.kinds
        arguments = tuple(values[node] for node in piece.inputs)
        results = tuple(range(count, count := count + len(piece.results)))
        values.update(zip(piece.results, results, strict=True))
        steps.append(PieceStep(key, arguments, results))
    (returned,) = trace.graph.graph.output_node().args
    numbers = [values[node] for node in returned]  # type: ignore[index, union-attr]

    def number(leaf: int | str) -> int:
        return sources.index(leaf) if isinstance(leaf, str) else numbers[leaf]

    return SplitGraph(
        sources=tuple(sources),
        steps=tuple(_with_last_uses(steps, {*range(len(sources)), *numbers})),
        results=pytree.tree_map(number, trace.results),
        pieces=pieces,
        inputs=inputs,
    )


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
    """One stretch as a graph of its own. Its inputs are tensors; the number of tokens it reads off one of them."""

    def __init__(self, group: Sequence[fx.Node], results: Sequence[fx.Node]) -> None:
        own = [*_sizes_for(group), *group]
        self.results = results
        foreign = [
            node for node in dict.fromkeys(node for user in own for node in user.all_input_nodes) if node not in own
        ]
        self.inputs = [node for node in foreign if not _is_size(node)]
        self._graph = fx.Graph()
        self._copies: dict[fx.Node, fx.Node] = {}
        for index, node in enumerate(self.inputs):
            if not _is_tensor(node):
                raise CaptureFailed(f"the trace hands {node} across a break, which is not a tensor")
            self._copies[node] = self._graph.placeholder(f"input_{index}")
        for node in foreign:
            if _is_size(node):
                self._copies[node] = self._rows()
        for node in own:
            if node.op == "get_attr":
                raise CaptureFailed(f"the trace holds the constant tensor {node.target}: make it a registered buffer")
            arguments, keywords = fx.map_arg((node.args, node.kwargs), self._copies.__getitem__)
            self._copies[node] = self._graph.create_node(node.op, node.target, arguments, keywords)  # type: ignore[arg-type]
        self._graph.output(tuple(self._copies[node] for node in self.results))
        self.kinds = tuple(_kind(node.meta["example_value"]) for node in self.inputs)

    def _rows(self) -> fx.Node:
        """The number of tokens: the one symbol of a trace."""
        for node in self.inputs:
            for dimension, size in enumerate(node.meta["example_value"].shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    return self._graph.call_method("size", (self._copies[node], dimension))
        raise CaptureFailed("a stretch between two breaks uses the number of tokens and reads no tensor that has it")

    def module(self) -> fx.GraphModule:
        """Takes tensors like `inputs`, returns a tuple of tensors like `results`."""
        self._graph.lint()
        return fx.GraphModule(torch.nn.Module(), self._graph)

    def hash(self) -> str:
        """Of what it computes, whatever names the trace gave."""
        return sha256(f"{self.kinds}\n{self._graph}".encode()).hexdigest()[:16]


def _made(group: Sequence[fx.Node]) -> list[fx.Node]:
    """The tensors of `group` that are used outside it."""
    inside = set(group)
    return [node for node in group if _is_tensor(node) and any(user not in inside for user in node.users)]


def _sizes_for(group: Sequence[fx.Node]) -> list[fx.Node]:
    """What earlier stretches computed of sizes and `group` uses: it is computed again."""
    found: dict[fx.Node, None] = {}

    def need(node: fx.Node) -> None:
        if node.op != "placeholder" and _is_size(node):
            for argument in node.all_input_nodes:
                need(argument)
            found.setdefault(node)

    inside = set(group)
    for node in group:
        for argument in node.all_input_nodes:
            if argument not in inside:
                need(argument)
    return list(found)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), Tensor)


def _is_size(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.SymInt | int)


def _kind(value: Tensor) -> PieceInput:
    """Of a traced tensor, the trace's symbol called `rows`."""
    sizes, strides = (
        tuple(re.sub(r"\bs\d+\b", "rows", str(size)) if isinstance(size, torch.SymInt) else size for size in part)
        for part in (value.shape, value.stride())
    )
    return PieceInput(value.dtype, sizes, strides)


def _with_last_uses(steps: Sequence[PieceStep | AttentionStep], kept: set[int]) -> Iterator[PieceStep | AttentionStep]:
    """`steps`, each with the values that may be forgotten once it has them; `kept` never are."""
    last: dict[int, int] = {}
    for index, step in enumerate(steps):
        last |= dict.fromkeys(step.arguments, index)
    for index, step in enumerate(steps):
        dying = (value for value in dict.fromkeys(step.arguments) if last[value] == index and value not in kept)
        yield replace(step, last=tuple(dying))
