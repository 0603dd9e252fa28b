"""Heads of one layer as the KV cache holds those of all: as many, as wide. What a layer lacks is zeros, which add
nothing to a score and whose results are left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.models.by_transformers.attention_call import AttentionCall


@dataclass(frozen=True, slots=True)
class Layout:
    """Heads of every layer: `group` queries for each of `kv_heads` keys, all of `width`. Scores are multiplied by
    `scale`."""

    kv_heads: int
    group: int
    width: int
    scale: float

    @classmethod
    def of(cls, calls: Sequence[AttentionCall]) -> "Layout":
        """The least that holds all `calls`."""
        return cls(
            max(call.kv_heads for call in calls),
            max(call.group for call in calls),
            max(max(call.key_width, call.value_width) for call in calls),
            calls[0].scale,
        )

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group

    def queries(self, call: AttentionCall, q: Tensor) -> Tensor:
        """[1, heads, tokens, width] of a call -> [tokens, heads, width] of all."""
        rows = q[0].transpose(0, 1)
        if call.scale != self.scale:
            rows = rows * (call.scale / self.scale)
        missing = self.width - call.key_width, self.group - call.group, self.kv_heads - call.kv_heads
        if any(missing):
            rows = rows.reshape(-1, call.kv_heads, call.group, call.key_width)
            rows = functional.pad(rows, (0, missing[0], 0, missing[1], 0, missing[2]))
        return rows.reshape(-1, self.heads, self.width)

    def keys(self, call: AttentionCall, k: Tensor) -> Tensor:
        """[1, kv_heads, tokens, width] of a call, keys or values -> [tokens, kv_heads, width] of all."""
        rows = k[0].transpose(0, 1)
        missing = self.width - k.shape[3], self.kv_heads - call.kv_heads
        if any(missing):
            rows = functional.pad(rows, (0, missing[0], 0, missing[1]))
        return rows.contiguous()

    def result(self, call: AttentionCall, attended: Tensor) -> Tensor:
        """[tokens, heads · width] of all -> [1, tokens, heads, width] of a call."""
        rows = attended.view(1, -1, self.kv_heads, self.group, self.width)
        rows = rows[:, :, : call.kv_heads, : call.group, : call.value_width]
        return rows.reshape(1, rows.shape[1], -1, call.value_width)

    def sinks(self, call: AttentionCall) -> Tensor | None:
        """Those of a call, [heads] of all."""
        if call.sinks is None:
            return None
        grid = call.sinks.detach().view(call.kv_heads, call.group)
        return functional.pad(grid, (0, self.group - call.group, 0, self.kv_heads - call.kv_heads)).flatten()
