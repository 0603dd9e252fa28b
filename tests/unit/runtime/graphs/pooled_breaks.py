"""A bug put back: SGLang #37606, breaks whose tensors live in the graph pool and are held by address only."""

from collections.abc import Callable

import torch
from torch import Tensor

from graphpod_runtime.graphs.breakable import BreakableGraph, Rows, place


class PooledBreaks(BreakableGraph):
    """SGLang #37606 put back: a break's tensors live in the graph pool, and its closure holds their addresses only.

    `owners` tells whether somebody else keeps the blocks: then the same code is right, so what makes it wrong below
    is the weak hold and nothing else.
    """

    owners: list[Tensor] | None = None

    def interrupt(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        arena = self._pool.arena  # type: ignore[attr-defined]
        self._segments[-1].end()
        out = arena.empty_like(torch.empty(self.site.size, q.shape[1] * q.shape[2]))
        if self.owners is not None:
            self.owners += [q, k, v, out]
        self._layers.append(layer)
        self.weak: dict[int, list[Tensor]] = getattr(self, "weak", {})
        self.weak[layer] = [arena.alias(tensor) for tensor in (q, k, v, out)]
        rows = self._arena.rows(self.site.size, self.site.size)
        self._break(layer, rows, self._attend(rows.q, rows.k, rows.v, rows.out))
        handed = arena.alias(out)
        del q, k, v, out
        self.begin()
        return handed

    def _break(self, layer: int, rows: Rows, attend: Callable[[int], Tensor]) -> None:
        q, k, v, out = self.weak[layer]
        count = rows.q.shape[0]
        place(self._attend(q[:count], k[:count], v[:count], out[:count])(layer), out[:count])
        out[count:].zero_()
