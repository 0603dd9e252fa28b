"""What the engine asks of a model: three calls, and the shape that memory and attention are sized from."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.layers.rope import Stretch

HOST = torch.device("cpu")
"""Where tensors are unless somebody says otherwise."""
PIECE_BYTES = 64 << 20
"""Weights are taken in pieces of this size at most: at 1 MB/s, a piece a minute, reading is seen to go on."""

Heard = Callable[[], None]
"""Is called whenever something has got on."""


def unheard() -> None:
    """A Heard that nobody listens to."""


class ModelInvalid(Exception):
    """The model's folder cannot be served: no weights, corrupt weights, unknown architecture, wrong shapes.

    The message says what is wrong, in which file, and what to do.
    """


class ModelUnsupported(ModelInvalid):
    """The model is whole, and this engine does not have what it needs: the message names it."""


class Activation(Enum):
    """The gate of an MLP, by its name in config.json."""

    Silu = "silu"
    GeluTanh = "gelu_pytorch_tanh"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder-only model, and what sets one family's arithmetic apart from another's. `max_position` is
    tokens; `eos_ids` end a sequence.
    """

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
    out_bias: bool = False
    mlp_bias: bool = False
    activation: Activation = Activation.Silu
    stretch: Stretch | None = None
    """How positions beyond those of pretraining are reached; windowed layers need none."""
    windows: tuple[int | None, ...] = ()
    """Of each layer: how many of the last tokens a token attends to, itself included; None: all. (): None for every
    layer."""
    local_rope_theta: float | None = None
    """`rope_theta` of windowed layers, where they have their own."""
    attention_scale: float | None = None
    """What query · key is multiplied by; None: 1 / sqrt(head_dim)."""
    embedding_scale: float = 1.0
    """What embeddings are multiplied by, rounded to their dtype first."""
    norm_results: bool = False
    """Whether attention's and the MLP's results are normalised before they are added."""
    norm_plus_one: bool = False
    """Whether a norm's weight w of the checkpoint means 1 + w, applied in float32."""

    def window(self, layer: int) -> int | None:
        """That of `layer`."""
        return self.windows[layer] if self.windows else None

    @property
    def windowed(self) -> bool:
        """Whether any layer attends to a window only."""
        return any(window is not None for window in self.windows)

    @property
    def softmax_scale(self) -> float:
        """`attention_scale`, or its default."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale


class KvScale(NamedTuple):
    """What an FP8 KV cache divides keys and values of one layer by."""

    key: float = 1.0
    value: float = 1.0


class Attend(Protocol):
    """Attention as a model calls it: layer index, q [tokens, heads, d], k and v [tokens, kv_heads, d].

    Returns [tokens, heads · d]. The caller decides whether it runs inside a graph or as a break.
    """

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


class Body(Protocol):
    """The layers between embedding and final norm, the stretch that prefill graphs capture.

    hidden [tokens, hidden], positions [tokens] -> [tokens, hidden]. Rows do not see each other except in `attend`.
    `hidden` is given away: compiled layers add to it in place.
    """

    def __call__(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor: ...


class Model(Protocol):
    """A decoder-only language model in three parts."""

    kv_scales: tuple[KvScale, ...]
    """Of each layer, final once the weights are loaded; only an FP8 KV cache has them."""
    unscaled_layers: tuple[int, ...]
    """Layers whose scales are 1 because the checkpoint gives none."""

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

    def compile_halves(self, cache: CompileCache | None) -> None:
        """Takes the two halves of a layer, for all layers at once, from `cache` when they run next; without one they
        are what was written."""

    def module(self) -> nn.Module:
        """The whole model as a module, for its parameters and buffers."""


@dataclass(frozen=True, slots=True)
class Target:
    """Rows [first, first + rows) of `parameter` take one tensor of the checkpoint (fused weights take several) `plus`
    a number."""

    parameter: nn.Parameter
    first: int
    rows: int
    plus: float = 0.0

    @property
    def view(self) -> Tensor:
        """The rows to fill."""
        return self.parameter.data[self.first : self.first + self.rows]

    def fill(self, tensor: Tensor, read: Heard = unheard) -> None:
        """Takes `tensor`, which has the shape of `view`, piece by piece; `read` is called after each: a mapped tensor
        is read from storage as it is copied.
        """
        rows = max(1, PIECE_BYTES * self.rows // max(1, tensor.nbytes))
        for piece, into in zip(tensor.split(rows), self.view.split(rows), strict=True):
            into.copy_(piece)
            read()
        if self.plus:
            self.view.add_(self.plus)


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of an EngineConfig's `dtype`."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
