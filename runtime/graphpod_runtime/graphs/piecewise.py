"""Piecewise: a model's body traced once, cut at attention, its pieces run as traced or compiled."""

from collections.abc import Callable

import torch
from torch import fx, nn

from graphpod_runtime.graphs.chain import ChainBody, Piece, members

Compiler = Callable[[str, fx.GraphModule], Piece]
"""(hash, a piece whose nodes carry fake tensors) -> the piece to run."""


def eager(key: str, piece: fx.GraphModule) -> Piece:
    """The traced operators as they are."""
    return piece.forward  # type: ignore[no-any-return]


class Traced:
    """The chain of one body, made when it is first asked for and kept: a ladder that is captured again finds it."""

    def __init__(
        self, body: nn.Module, width: int, dtype: torch.dtype, device: torch.device, compiler: Compiler = eager
    ) -> None:
        """`body` takes hidden states [tokens, `width`]."""
        self._body = body
        self._example = (
            torch.zeros(2, width, dtype=dtype, device=device),
            torch.zeros(2, dtype=torch.int64, device=device),
        )
        self._compiler = compiler
        self._chain: ChainBody | None = None
        self.traces = 0
        """Of all traces so far."""
        self.pieces = 0
        """Distinct ones."""

    @property
    def body(self) -> ChainBody:
        """The chain as a Body. CaptureFailed when the body cannot be traced."""
        if self._chain is None:
            self._chain = self._made()
        return self._chain

    def _made(self) -> ChainBody:
        from graphpod_runtime.graphs.pieces import cut
        from graphpod_runtime.graphs.trace import trace

        chain = cut(trace(self._body, *self._example))
        self.traces += 1
        pieces = {key: self._compiler(key, piece) for key, piece in chain.pieces.items()}
        self.pieces = len(pieces)
        for piece in chain.pieces.values():
            for node in piece.graph.nodes:
                # The trace's fake tensors, of which nobody asks again.
                node.meta.clear()
        return ChainBody(chain, pieces, members(self._body))
