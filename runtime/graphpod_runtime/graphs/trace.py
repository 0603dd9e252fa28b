"""One Dynamo trace of a model's body, the number of tokens a symbol in it.

The trace is made once, for any number of tokens, and Dynamo is never asked again: what runs are the traced operators
(`pieces.py`), called without guards. Attention appears in the trace as a split operator, which stands for whatever
attention the traced code is run with later.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, fx, nn
from torch.fx.experimental import _config as shapes_config
from torch.utils import _pytree as pytree

from graphpod_runtime.graphs.errors import CaptureFailed

torch.library.define("graphpod::attend", "(int layer, Tensor q, Tensor k, Tensor v) -> Tensor")


@torch.library.register_fake("graphpod::attend")
def _attend_shape(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[1] * q.shape[2])


SPLIT_OPS = frozenset({torch.ops.graphpod.attend.default, torch.ops.graphpod.attend})
"""Operators at which a trace is cut. They have no kernel: they only ever stand in a trace."""

ROWS, HIDDEN, POSITIONS = "", ".hidden", ".positions"
"""Sources of a trace's inputs: the number of tokens, the two arguments of the body; others are members' names."""


@dataclass(frozen=True, slots=True)
class Trace:
    """`graph` takes for each placeholder what `sources` names, and returns a flat tuple of tensors.

    `results` is what the body returns, each tensor replaced by its place in that tuple.
    """

    graph: fx.GraphModule
    sources: tuple[str, ...]
    results: Any


def trace(body: nn.Module, hidden: Tensor, positions: Tensor) -> Trace:
    """Traces `body`, a Body, with tensors like `hidden` [tokens, hidden] and `positions` [tokens]; nothing is computed.

    CaptureFailed when its code has no single graph for every number of tokens.
    """
    graphs: list[fx.GraphModule] = []
    calls: list[tuple[Any, ...]] = []
    marks: list[Tensor] = []

    def keep(graph: fx.GraphModule, inputs: object) -> Any:
        graphs.append(graph)
        (results,) = graph.graph.output_node().args
        assert isinstance(results, Sequence)
        marks.extend(torch.empty(0) for _ in results)

        def called(*arguments: Any) -> tuple[Tensor, ...]:
            calls.append(arguments)
            return tuple(marks)

        return called

    def code(hidden: Tensor, positions: Tensor) -> Any:
        return body(hidden, positions, torch.ops.graphpod.attend)

    # Tensors of our own: what is marked dynamic stays so.
    hidden, positions = hidden.detach().clone(), positions.detach().clone()
    for tensor in (hidden, positions):
        torch._dynamo.mark_dynamic(tensor, 0)
    try:
        with _any_size():
            returned = torch.compile(code, fullgraph=True, backend=keep)(hidden, positions)
    except Exception as error:
        raise CaptureFailed(f"the body cannot be traced for any number of tokens: {error}") from error
    finally:
        torch._dynamo.reset_code(code.__code__)
    (graph,), (arguments,) = graphs, calls
    known = {id(hidden): HIDDEN, id(positions): POSITIONS}
    known |= {id(tensor): name for name, tensor in members(body).items()}
    places = {id(mark): index for index, mark in enumerate(marks)}
    return Trace(
        graph=graph,
        sources=tuple(ROWS if isinstance(value, int) else _source(value, known) for value in arguments),
        results=pytree.tree_map_only(Tensor, lambda leaf: places[id(leaf)], returned),
    )


def members(body: nn.Module) -> Mapping[str, Tensor]:
    """Parameters and buffers of `body` by name."""
    return dict(body.named_parameters()) | dict(body.named_buffers())


@contextmanager
def _any_size() -> Iterator[None]:
    """No size is special: else torch traces again for one token, whatever is marked dynamic."""
    with ExitStack() as stack:
        stack.enter_context(shapes_config.patch(backed_size_oblivious=True))
        yield


def _source(tensor: Tensor, known: Mapping[int, str]) -> str:
    if id(tensor) not in known:
        raise CaptureFailed(
            f"the traced body reads a tensor {list(tensor.shape)} that is neither its argument nor a member of it: "
            "make it a registered buffer"
        )
    return known[id(tensor)]
