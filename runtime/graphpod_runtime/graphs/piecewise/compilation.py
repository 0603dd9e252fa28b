"""Piecewise: a model's body traced once, cut at attention, its pieces run as traced or compiled."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, fx, nn

from graphpod_runtime.base.errors import CaptureFailed
from graphpod_runtime.base.opaque_call import OpaqueCall
from graphpod_runtime.compiled.cache import CompileCache, Compiled
from graphpod_runtime.graphs.piecewise.pieces import Piece, PieceInput, SplitBody, SplitGraph, members
from graphpod_runtime.graphs.piecewise.store import SplitGraphStore

Compiler = Callable[[SplitGraph], dict[str, Piece]]
"""What was traced -> the pieces to run, by hash."""

ROWS = 2
"""Of examples: any number."""


def eager(graph: SplitGraph) -> dict[str, Piece]:
    """The traced operators as they are."""
    return {key: piece.forward for key, piece in graph.pieces.items()}


def inductor(cache: CompileCache, device: torch.device) -> Compiler:
    """Pieces compiled for any number of tokens, or taken from `cache`; a recording has each as one call."""

    def compiled(key: str, piece: fx.GraphModule, inputs: tuple[PieceInput, ...]) -> Piece:
        examples = tuple(_example(kind, device) for kind in inputs)
        rows = tuple(index for index, kind in enumerate(inputs) if kind.sizes[:1] == ("rows",))
        return OpaqueCall(cache.code(Compiled.Piece, key, piece, examples, rows), piece)

    def all_compiled(graph: SplitGraph) -> dict[str, Piece]:
        with cache.as_many(Compiled.Piece, len(graph.pieces)):
            return {key: compiled(key, piece, graph.inputs[key]) for key, piece in graph.pieces.items()}

    return all_compiled


def _example(kind: PieceInput, device: torch.device) -> Tensor:
    sizes = tuple(ROWS if size == "rows" else size for size in kind.sizes[:1]) + kind.sizes[1:]
    if not all(isinstance(number, int) for number in (*sizes, *kind.strides)):
        raise CaptureFailed(f"a piece takes a tensor {list(kind.sizes)}: only a first dimension may be the rows")
    return torch.empty_strided(sizes, kind.strides, dtype=kind.dtype, device=device)  # type: ignore[arg-type]


class PiecewiseCompilation:
    """One body, traced and split when it is first asked for, and kept: a ladder that is captured again finds it."""

    def __init__(
        self, body: nn.Module, hidden: Tensor, compiler: Compiler = eager, store: SplitGraphStore | None = None
    ) -> None:
        """`hidden` [any, width] is like the hidden states that `body` takes."""
        self._body, self._hidden = body, hidden
        self._compiler, self._store = compiler, store
        self._split: SplitBody | None = None
        self.traces = 0
        """Of all traces so far: none where an earlier start left its own."""
        self.pieces = 0
        """Distinct ones."""

    @property
    def body(self) -> SplitBody:
        """The split graph as a Body. CaptureFailed when the body cannot be traced, CompileFailed when a piece cannot be
        compiled."""
        if self._split is None:
            graph = (self._store and self._store.found(self._body)) or self._made()
            pieces = self._compiler(graph)
            self.pieces = len(pieces)
            self._split = SplitBody(graph, pieces, members(self._body))
        return self._split

    @property
    def compiles(self) -> bool:
        """Whether pieces are compiled."""
        return self._compiler is not eager

    def forgo_compiling(self) -> None:
        """Pieces will run as they were traced."""
        self._compiler, self._split = eager, None

    def _made(self) -> SplitGraph:
        # Not before it is needed: this imports torch's compiler.
        from graphpod_runtime.graphs.piecewise.cut_at_attention import cut
        from graphpod_runtime.graphs.piecewise.dynamo_trace import trace

        hidden = self._hidden.new_zeros(ROWS, self._hidden.shape[1])
        graph = cut(trace(self._body, hidden, torch.zeros(ROWS, dtype=torch.int64, device=hidden.device)))
        self.traces += 1
        if self._store:
            self._store.keep(self._body, graph)
        return graph


def compilation_in(
    folder: Path, body: nn.Module, model: str, hidden: Tensor, cache: CompileCache | None
) -> PiecewiseCompilation:
    """The body of the model that `model` describes; its trace is kept in `folder`, pieces are compiled in `cache` or
    not at all."""
    device = hidden.device
    compiler = inductor(cache, device) if cache is not None else eager
    return PiecewiseCompilation(body, hidden, compiler, SplitGraphStore(folder, device, f"{model} {hidden.dtype}"))
