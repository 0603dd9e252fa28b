"""Attention by torch for engines whose decode rows may be drafts of a tree."""

from collections.abc import Iterable

import torch
from torch import Tensor

from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.kernels.tree_attention import tree_attention


class TreeAttention(TorchAttention):
    """TorchAttention, without a kernel of ours, whose decode steps read `Inputs.hidden`."""

    _hidden: Tensor | None = None
    """Of the rows that were planned; None: they are of prompts."""

    def reserve(self, rows: int, pages: int) -> Iterable[tuple[str, Tensor]]:
        self._trees = Buffers(Slot("hidden", rows, (), torch.int64), device=self.cache.device)
        return *super().reserve(rows, pages), *self._trees

    def plan(self, inputs: Inputs) -> None:
        super().plan(inputs)
        hidden = torch.zeros_like(inputs.slots) if inputs.hidden is None else inputs.hidden
        self._hidden = hidden.to(self._device, non_blocking=True) if inputs.one_row_each else None

    def plan_step(self, inputs: Inputs, size: int) -> None:
        super().plan_step(inputs, size)
        self._trees.load("hidden", inputs.slots[:0] if inputs.hidden is None else inputs.hidden, size)
        self._hidden = self._trees.view("hidden", size)

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        if self._hidden is None:
            return super().run(layer, q, k, v, out)
        rows, (keys, values, window, cap, sinks, scales) = self._rows, self._layers[layer]
        result = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out.view(q.shape)
        tree_attention(
            q,
            k,
            v,
            keys,
            values,
            rows.slots,
            rows.tables,
            rows.lengths,
            self._hidden,
            self._softmax_scale,
            window,
            cap,
            sinks,
            *scales,
            result,
        )
        return result.flatten(1)
