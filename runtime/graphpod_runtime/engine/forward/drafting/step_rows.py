"""Rows of one draft step, on static buffers: where each token's keys and values go, and what it attends to."""

from collections.abc import Iterable

import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.pages import SCRATCH_PAGE


class DraftStepRows:
    """Of up to so many rows. Its work is part of a captured graph."""

    def __init__(self, attention: AttentionBackend, rows: int, pages: int) -> None:
        """`attention` is bound to a cache; sequences have up to so many `pages`."""
        self._attention, self._page_size = attention, attention.cache.page_size
        self._static = dict(attention.reserve(rows, pages))

    def tensors(self) -> Iterable[tuple[str, Tensor]]:
        """Names and whole buffers, for registration."""
        return ((f"attention.{name}", tensor) for name, tensor in self._static.items())

    def own(self, tables: Tensor, first: int = 0) -> None:
        """Rows from `first` on are on the pages of `tables` [rows, pages]."""
        self._static["tables"][first : first + tables.shape[0]].copy_(tables)

    def plan(self, tokens: Tensor, ends: Tensor, tables: Tensor, real: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Attention's next pass is of `tokens` [rows], whose texts have `ends` tokens with them, on the pages of
        `tables`, which are the rows' `own`. Rows that are not `real` write to the scratch page; what they give is not
        read. Rows do not see what is `hidden` [rows], as Inputs has it. Their positions [rows], were they of chains."""
        rows = tokens.shape[0]
        nothing, static = real.logical_not(), self._static
        ends = ends.masked_fill(nothing, 1)
        positions = ends - 1
        static["slots"][:rows].copy_(self.slots(tables, positions).masked_fill(nothing, SCRATCH_PAGE))
        static["lengths"][:rows].copy_(ends)
        if (hiding := static.get("hidden")) is not None:
            hiding = hiding[:rows]
            hiding.copy_(torch.zeros_like(ends) if hidden is None else hidden.masked_fill(nothing, 0))
        # The rows lie in attention's own buffers: this copies nothing.
        self._attention.plan_step(
            Inputs(
                Phase.Decode,
                tokens,
                positions,
                *(static[name][:rows] for name in ("slots", "tables", "lengths")),
                starts=static["lengths"][:0],
                yields=(),
                in_place=True,
                hidden=hiding,
            ),
            rows,
        )
        return positions

    def slots(self, tables: Tensor, positions: Tensor) -> Tensor:
        """KV slots of `positions` [rows] on the pages of `tables` [rows, pages]."""
        pages = tables.gather(1, (positions // self._page_size)[:, None])[:, 0]
        return pages * self._page_size + positions % self._page_size
