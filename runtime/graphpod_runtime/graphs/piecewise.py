"""Piecewise: a model's body traced once, cut at attention, its pieces run as traced or compiled."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, fx, nn

from graphpod_runtime.compiled.cache import CompileCache, Compiled
from graphpod_runtime.graphs.chain import Chain, ChainBody, Kind, Piece, members
from graphpod_runtime.graphs.chain_store import ChainStore
from graphpod_runtime.graphs.errors import CaptureFailed
from graphpod_runtime.graphs.opaque import Opaque

Compiler = Callable[[str, fx.GraphModule, tuple[Kind, ...]], Piece]
"""(hash, what was traced, its inputs) -> the piece to run."""

ROWS = 2
"""Of examples: any number."""


def eager(key: str, piece: fx.GraphModule, inputs: tuple[Kind, ...]) -> Piece:
    """The traced operators as they are."""
    return piece.forward  # type: ignore[no-any-return]


def inductor(cache: CompileCache, device: torch.device) -> Compiler:
    """Pieces compiled for any number of tokens, or taken from `cache`; a recording has each as one call."""

    def compiled(key: str, piece: fx.GraphModule, inputs: tuple[Kind, ...]) -> Piece:
        examples = tuple(_example(kind, device) for kind in inputs)
        rows = tuple(index for index, kind in enumerate(inputs) if kind.sizes[:1] == ("rows",))
        return Opaque(cache.code(Compiled.Piece, key, piece, examples, rows), piece)

    return compiled


def _example(kind: Kind, device: torch.device) -> Tensor:
    sizes = tuple(ROWS if size == "rows" else size for size in kind.sizes[:1]) + kind.sizes[1:]
    if not all(isinstance(number, int) for number in (*sizes, *kind.strides)):
        raise CaptureFailed(f"a piece takes a tensor {list(kind.sizes)}: only a first dimension may be the rows")
    return torch.empty_strided(sizes, kind.strides, dtype=kind.dtype, device=device)  # type: ignore[arg-type]


class Traced:
    """The chain of one body, made when it is first asked for and kept: a ladder that is captured again finds it."""

    def __init__(
        self, body: nn.Module, hidden: Tensor, compiler: Compiler = eager, store: ChainStore | None = None
    ) -> None:
        """`hidden` [any, width] is like the hidden states that `body` takes."""
        self._body, self._hidden = body, hidden
        self._compiler, self._store = compiler, store
        self._chain: ChainBody | None = None
        self.traces = 0
        """Of all traces so far: none where an earlier start left its own."""
        self.pieces = 0
        """Distinct ones."""

    @property
    def body(self) -> ChainBody:
        """The chain as a Body. CaptureFailed when the body cannot be traced, CompileFailed when a piece cannot be
        compiled."""
        if self._chain is None:
            chain = (self._store and self._store.found(self._body)) or self._made()
            pieces = {key: self._compiler(key, piece, chain.inputs[key]) for key, piece in chain.pieces.items()}
            self.pieces = len(pieces)
            self._chain = ChainBody(chain, pieces, members(self._body))
        return self._chain

    @property
    def compiles(self) -> bool:
        """Whether pieces are compiled."""
        return self._compiler is not eager

    def forgo_compiling(self) -> None:
        """Pieces will run as they were traced."""
        self._compiler, self._chain = eager, None

    def _made(self) -> Chain:
        # Not before it is needed: this imports torch's compiler.
        from graphpod_runtime.graphs.pieces import cut
        from graphpod_runtime.graphs.trace import trace

        hidden = self._hidden.new_zeros(ROWS, self._hidden.shape[1])
        chain = cut(trace(self._body, hidden, torch.zeros(ROWS, dtype=torch.int64, device=hidden.device)))
        self.traces += 1
        if self._store:
            self._store.keep(self._body, chain)
        return chain


def traced_in(folder: Path, body: nn.Module, model: str, hidden: Tensor, cache: CompileCache | None) -> Traced:
    """The body of the model that `model` describes; its trace is kept in `folder`, pieces are compiled in `cache` or
    not at all."""
    device = hidden.device
    compiler = inductor(cache, device) if cache is not None else eager
    return Traced(body, hidden, compiler, ChainStore(folder, device, f"{model} {hidden.dtype}"))
