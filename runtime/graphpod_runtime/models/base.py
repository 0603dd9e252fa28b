"""What the engine asks of a model: three calls, and the shape that memory and attention are sized from."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

HOST = torch.device("cpu")
"""Where tensors are unless somebody says otherwise."""


class ModelInvalid(Exception):
    """The model's folder cannot be served: no weights, corrupt weights, unknown architecture, wrong shapes.

    The message says what is wrong, in which file, and what to do.
    """


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder-only model. `max_position` is tokens; `eos_ids` end a sequence."""

    architecture: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int
    norm_eps: float
    rope_theta: float
    tied: bool
    eos_ids: tuple[int, ...]
    qkv_bias: bool = False
    qk_norm: bool = False
    """Whether each head's query and key is normalised before its rotation."""


class Attend(Protocol):
    """Attention as a model calls it: layer index, q [tokens, heads, d], k and v [tokens, kv_heads, d].

    Returns [tokens, heads · d]. The caller decides whether it runs inside a graph or as a break.
    """

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


class Body(Protocol):
    """The layers between embedding and final norm, the stretch that prefill graphs capture.

    hidden [tokens, hidden], positions [tokens] -> [tokens, hidden]. Rows do not see each other except in `attend`.
    """

    def __call__(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor: ...


class Model(Protocol):
    """A decoder-only language model in three parts."""

    @property
    def shape(self) -> ModelShape: ...

    @property
    def body(self) -> nn.Module:
        """Is a Body; a module, so that eager passes can be counted by a hook."""

    def embed(self, tokens: Tensor) -> Tensor:
        """[tokens] -> [tokens, hidden]"""

    def head(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] -> logits [rows, vocab], final norm included."""

    def targets(self) -> "dict[str, Target]":
        """For each tensor name of a Hugging Face checkpoint: where it goes."""

    def compile_halves(self) -> None:
        """Compiles the two halves of a layer, for all layers at once, when they run next."""

    def module(self) -> nn.Module:
        """The whole model as a module, for its parameters and buffers."""


@dataclass(frozen=True, slots=True)
class Target:
    """Rows [first, first + rows) of `parameter` take one tensor of the checkpoint (fused weights take several)."""

    parameter: nn.Parameter
    first: int
    rows: int

    @property
    def view(self) -> Tensor:
        """The rows to fill."""
        return self.parameter.data[self.first : self.first + self.rows]


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of an EngineConfig's `dtype`."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]
