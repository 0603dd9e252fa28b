"""What the engine asks of a model: embedding, body and head, and where its weights go."""

from typing import Protocol

import torch
from torch import Tensor, nn

from graphpod_runtime.base.shapes import KvScale, ModelShape
from graphpod_runtime.compiled.cache import CompileCache


class Model(Protocol):
    """A decoder-only language model in three parts."""

    kv_scales: tuple[KvScale, ...]
    """Of each layer, final once the weights are loaded; only an FP8 KV cache has them."""
    unscaled_layers: tuple[int, ...]
    """Layers whose scales are 1 because the checkpoint gives none."""

    sinks: tuple[Tensor | None, ...]
    """Of each layer, [heads]: as `ModelShape.sinks` says; (): none has any."""

    @property
    def shape(self) -> ModelShape: ...

    @property
    def body(self) -> nn.Module:
        """Is a Body; a module, so that eager passes can be counted by a hook."""

    def embed(self, tokens: Tensor) -> Tensor:
        """[tokens] -> what the body takes of each: [tokens, hidden], or as `embedded` says."""

    def embedded(self, dtype: torch.dtype) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of a row that `embed` gives, in a model of `dtype`."""

    def head(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] -> logits [rows, vocab], final norm included."""

    def final(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, hidden], by the final norm: what `head` makes logits of."""

    def logits(self, final: Tensor) -> Tensor:
        """[rows, hidden], normalised -> logits [rows, vocab]"""

    def compile_halves(self, cache: CompileCache | None) -> int:
        """Takes the two halves of a layer, for all layers of the same forms at once, from `cache` when they run next;
        without one they are what was written. How many functions that is."""

    def module(self) -> nn.Module:
        """The whole model as a module, for its parameters and buffers."""
