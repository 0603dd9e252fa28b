"""Sizes and element types of a model, from which memory, kernels and attention are sized."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from graphpod_policy import ModelPath
from graphpod_policy.model.architectures import HeadNorm, Norm
from graphpod_policy.model.fp8_scheme import Fp8Scheme
from graphpod_policy.model.latent import Latent
from graphpod_policy.model.mixture import Mixture
from graphpod_policy.model.stages import stage_layers


class Stretch(Protocol):
    """Frequencies other than 1 / step."""

    @property
    def amplitude(self) -> float:
        """What cosines and sines are multiplied by."""

    def frequencies(self, steps: Tensor, theta: float) -> Tensor:
        """Radians per position of each pair of a head, from `steps` [head_dim / 2] = θ^(2i / head_dim)."""


HOST = torch.device("cpu")
"""Where tensors are unless somebody says otherwise."""


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
    qk_norm: HeadNorm | None = None
    """How queries and keys are normalised before their rotation."""
    out_bias: bool = False
    mlp_bias: bool = False
    gated: bool = True
    """Whether an MLP has a gate."""
    activation: Activation = Activation.Silu
    parallel: bool = False
    """Whether attention and MLP read the same input."""
    rotated: int = 0
    """Elements of a head that are rotated, its first ones; 0: all."""
    interleaved: bool = False
    """Whether a rotation turns elements 2i and 2i + 1 of a head in the checkpoint, not i and i + half."""
    unrotated: tuple[int, ...] = ()
    """Layers without rotary positions."""
    fused: tuple[str, ...] = ()
    """Matrices of the checkpoint that are several in others."""
    stretch: Stretch | None = None
    """How positions beyond those of pretraining are reached; windowed layers need none."""
    windows: tuple[int | None, ...] = ()
    """Of each layer: how many of the last tokens a token attends to, itself included; None: all. (): None for every
    layer."""
    caps: tuple[float | None, ...] = ()
    """Of each layer: c of scores s that become c · tanh(s / c); None: they stay. (): None for every layer."""
    sinks: bool = False
    """Whether heads of a layer have a score for a key without a value."""
    path: ModelPath = ModelPath.Native
    """Whose modules compute it."""
    uncapturable: str = ""
    """What of its code a graph cannot hold, as a rehearsal has shown; empty: nothing."""
    local_rope_theta: float | None = None
    """`rope_theta` of windowed layers, where they have their own."""
    attention_scale: float | None = None
    """What query · key is multiplied by; None: 1 / sqrt(head_dim)."""
    embedding_scale: float = 1.0
    """What embeddings are multiplied by; Gemma's is rounded to their dtype first."""
    norm_results: bool = False
    """Whether attention's and the MLP's results are normalised before they are added."""
    norm: Norm = Norm.Rms
    norm_inputs: bool = True
    """Whether attention and MLP read normalised input."""
    residual_scale: float = 1.0
    """What results of attention and MLP are multiplied by before they are added."""
    logit_scale: float = 1.0
    logit_cap: float | None = None
    """c of logits l that become c · tanh(l / c) behind their scale; None: they stay."""
    bare_input: bool = False
    """Whether the first layer's attention reads its input without a norm: that of an EAGLE head."""
    scheme: Fp8Scheme | None = None
    """Of the matrices of layers that are in FP8; None: all are plain."""
    mixture: Mixture | None = None
    """Its experts; None: all layers are dense."""
    latent: Latent | None = None
    """Widths of latent attention: a token's key, `head_dim` wide, is its value, too, and the only one of `kv_heads`.
    None: heads have keys and values."""
    clip: float | None = None
    """What elements of queries, keys and values are cut to, up and down, before their rotation; None: nothing."""
    part: "Part | None" = None
    """Of what model this is a rank's part; None: it is whole. Vocabulary and hidden size are those of the model."""
    stage: "Stage | None" = None
    """Of what model this is a stage of a pipeline; None: it has all layers. Layers are counted from its own first."""

    @property
    def model(self) -> "ModelShape":
        """That of all ranks."""
        shape = self if self.part is None else self.part.whole
        return shape if shape.stage is None else shape.stage.whole

    def staged(self, index: int, count: int) -> "ModelShape":
        """The layers of stage `index` of `count`."""
        layers = stage_layers(self.layers, count)
        first, end = sum(layers[:index]), sum(layers[: index + 1])
        return replace(
            self,
            layers=layers[index],
            windows=self.windows[first:end],
            caps=self.caps[first:end],
            unrotated=tuple(layer - first for layer in self.unrotated if first <= layer < end),
            mixture=self.mixture and self.mixture.staged(first, end),
            stage=Stage(self, index, count, first),
        )

    def split(self, rank: int, ranks: int, expert_groups: int = 1) -> "ModelShape":
        """The part of `rank`, which has its share of heads and of the columns of MLPs and experts. Ranks share a
        key-value head where there are fewer of these. All of it must divide. `expert_groups`: groups of ranks that have
        a share of the experts each."""
        mixture = self.mixture and self.mixture.split(rank, ranks, expert_groups)
        return replace(
            self,
            heads=self.heads // ranks,
            kv_heads=max(1, self.kv_heads // ranks),
            intermediate=self.intermediate // ranks,
            mixture=mixture,
            part=Part(self, rank, ranks),
        )

    def experts(self, layer: int) -> Mixture | None:
        """Those of `layer`; None: it is dense."""
        return self.mixture if self.mixture is not None and layer in self.mixture.layers else None

    def scheme_of(self, layer: int, part: str) -> Fp8Scheme | None:
        """That of the matrix of `layer` that has `part` in it. A scheme counts layers from the model's first."""
        layer += 0 if self.stage is None else self.stage.first
        return self.scheme if self.scheme is not None and self.scheme.covers(layer, part) else None

    def window(self, layer: int) -> int | None:
        """That of `layer`."""
        return self.windows[layer] if self.windows else None

    def cap(self, layer: int) -> float | None:
        """That of `layer`."""
        return self.caps[layer] if self.caps else None

    @property
    def rotary_width(self) -> int:
        """Elements of a head that tables of rotary positions are for; `rotated` of them turn."""
        return self.head_dim if self.latent is None else self.latent.rotated

    @property
    def plain_scores(self) -> bool:
        """Whether scores go to the softmax as they are."""
        return not self.sinks and not any(self.caps)

    @property
    def windowed(self) -> bool:
        """Whether any layer attends to a window only."""
        return any(window is not None for window in self.windows)

    @property
    def softmax_scale(self) -> float:
        """`attention_scale`, or its default."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale


class Part(NamedTuple):
    """What a rank has of a model."""

    whole: ModelShape
    rank: int
    ranks: int


class Stage(NamedTuple):
    """What a stage of a pipeline has of a model."""

    whole: ModelShape
    index: int
    count: int
    first: int
    """Its first layer."""

    @property
    def begins(self) -> bool:
        """Whether it has the embedding."""
        return self.index == 0

    @property
    def ends(self) -> bool:
        """Whether it has the last norm and the head."""
        return self.index == self.count - 1


class KvScale(NamedTuple):
    """What an FP8 KV cache divides keys and values of one layer by."""

    key: float = 1.0
    value: float = 1.0


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of an EngineConfig's `dtype`."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
