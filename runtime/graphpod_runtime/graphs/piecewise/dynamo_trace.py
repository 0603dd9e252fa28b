"""One Dynamo trace of a model's body, the number of tokens a symbol in it.

The trace is made once, for any number of tokens, and Dynamo is never asked again: what runs are the traced operators
(`pieces.py`), called without guards. Attention stands in the trace as a split operator, for whatever attention the
traced code is run with later.

Importing this module imports torch's compiler (seconds).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, fx, nn
from torch.fx.experimental import _config as shapes
from torch.utils import _pytree as pytree

from graphpod_runtime.base.errors import CaptureFailed
from graphpod_runtime.graphs.breaks import Forbidden, surrounded
from graphpod_runtime.graphs.piecewise.pieces import HIDDEN, POSITIONS, members

torch.library.define("graphpod::attend", "(int layer, Tensor q, Tensor k, Tensor v) -> Tensor")


@torch.library.register_fake("graphpod::attend")
def _attended(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[1] * q.shape[2])


SPLIT_OPS = frozenset({torch.ops.graphpod.attend, torch.ops.graphpod.attend.default})
"""Operators at which a trace is cut. They have no kernel: they only ever stand in a trace."""


@dataclass(frozen=True, slots=True)
class Trace:
    """`graph` takes for each placeholder what `sources` names (`pieces.py`; None: the number of tokens).
    It returns a flat sequence of tensors. `results` is what the body returns, each tensor replaced by its place in that
    sequence, or by its source if the graph does not make it.
    """

    graph: fx.GraphModule
    sources: tuple[str | None, ...]
    results: Any


def trace(body: nn.Module, hidden: Tensor, positions: Tensor) -> Trace:
    """Traces `body`, a Body, for tensors like `hidden` [tokens, hidden] and `positions` [tokens]; computes nothing.

    CaptureFailed when its code is no single graph for every number of tokens.
    """
    graphs: list[fx.GraphModule] = []
    calls: list[tuple[Any, ...]] = []
    marks: list[Tensor] = []

    def keep(graph: fx.GraphModule, inputs: object) -> Any:
        graphs.append(graph)
        (results,) = graph.graph.output_node().args
        marks.extend(torch.empty(0) for _ in results)  # type: ignore[union-attr]

        def called(*arguments: Any) -> tuple[Tensor, ...]:
            calls.append(arguments)
            return tuple(marks)

        return called

    def code(hidden: Tensor, positions: Tensor) -> Any:
        return body(hidden, positions, torch.ops.graphpod.attend)

    # Tensors of our own: a mark stays on a tensor.
    hidden, positions = hidden.detach().clone(), positions.detach().clone()
    for tensor in (hidden, positions):
        torch._dynamo.mark_dynamic(tensor, 0)
    try:
        # One size is dynamic, and no value of it is special. By itself torch would trace again for one token, whatever
        # is marked; and make dynamic what differed in another trace of this process, or of one before it.
        with (
            surrounded(Forbidden("a trace")),
            shapes.patch(backed_size_oblivious=True),
            torch._dynamo.config.patch(automatic_dynamic_shapes=False),
        ):
            returned = torch.compile(code, fullgraph=True, backend=keep)(hidden, positions)
    except Exception as error:
        raise CaptureFailed(f"the model's body cannot be traced for any number of tokens: {_reason(error)}") from error
    finally:
        torch._dynamo.reset_code(code.__code__)
    (graph,), (arguments,) = graphs, calls
    known = {id(hidden): HIDDEN, id(positions): POSITIONS}
    known |= {id(tensor): name for name, tensor in members(body).items()}
    places: dict[int, int | str] = {id(mark): place for place, mark in enumerate(marks)} | known

    def place(leaf: Any) -> int | str:
        if id(leaf) not in places:
            raise CaptureFailed(f"the model's body returns {leaf!r}, which is no tensor that it makes, is given or has")
        return places[id(leaf)]

    return Trace(
        graph=graph,
        sources=tuple(_source(value, known) for value in arguments),
        results=pytree.tree_map(place, returned),
    )


def _reason(error: Exception) -> str:
    """What Dynamo found, less its hints: the title, and what it met in the code."""
    title, _, more = str(error).partition("\n")
    met = re.search("Developer debug context: (.*)", more)
    return f"{title}: {met[1]}" if met else str(error).partition("\n\n")[0]


def _source(value: int | Tensor, known: Mapping[int, str]) -> str | None:
    if isinstance(value, int):
        return None
    if id(value) not in known:
        raise CaptureFailed(
            f"the model's body reads a tensor {list(value.shape)} that is neither its argument nor a member of it; "
            "make it a registered buffer"
        )
    return known[id(value)]
