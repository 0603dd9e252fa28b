"""Dense layers over two GPUs, for as few rows as decode has.

A seventh of such a pass goes into sums over ranks, residual sums and norms. Here a sum over ranks, the residual sum
behind it and the next norm are one launch. The norm behind an MLP is the next layer's, so a layer cannot be taken as
its two halves; what is left of these are products, and two kernels of ours.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from graphpod_policy.model.architectures import Norm
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.opaque_call import opaque
from graphpod_runtime.base.shapes import Activation
from graphpod_runtime.distributed.collectives import add_sum_of_ranks, adds_at_once
from graphpod_runtime.kernels.matrix_product import TRITON
from graphpod_runtime.models.layers.layer import DecoderLayer
from graphpod_runtime.models.layers.layer_functions import Before, Forms
from graphpod_runtime.models.mlp.dense import DenseMlp
from graphpod_runtime.models.norm import RowNorm

RMS = frozenset({Norm.Rms, Norm.RmsWide, Norm.RmsPlusOne})
"""Norms that are x / sqrt(mean(x²) + eps) times a weight."""


class SummedLayers:
    """The layers of a body, where each of them is a rank's part, dense, adds its two results as they are and has plain
    weights."""

    def __init__(self, layers: list[DecoderLayer]) -> None:
        self._layers, self._functions = layers, {layer.functions for layer in layers}
        self._gelu = layers[0].shape.activation is Activation.GeluTanh

    @classmethod
    def of(cls, layers: Iterable[Any]) -> "SummedLayers | None":
        """None where some of the `layers` of a body are others."""
        every = list(layers)
        return cls(every) if TRITON and all(map(_are_summed, every)) else None

    def take(self, hidden: Tensor) -> bool:
        """Whether the pass over `hidden` [rows, width] is one of these. Until the halves are compiled none is: all
        others need them, and it is their first pass that compiles them."""
        if not opaque() or not hidden.is_cuda or not adds_at_once(hidden):
            return False
        return all(functions.compiled for functions in self._functions)

    def __call__(self, hidden: Tensor, rotations: Sequence[tuple[Tensor, Tensor]], attend: Attend) -> Tensor:
        """As a body's, with cosines and sines of each layer; `hidden` is overwritten."""
        from graphpod_runtime.kernels.gated_triton import gated

        norms = [_of(layer.norm_before_attention) for layer in self._layers]
        read = norms[0](hidden)
        for layer, rotation, following in zip(self._layers, rotations, [*norms[1:], None], strict=True):
            mlp: Any = layer.mlp
            part = layer.out(attend(layer.index, *_heads(layer, read, rotation)))
            read = add_sum_of_ranks(part, hidden, _weight(_of(layer.norm_before_mlp)))
            part = mlp.down(gated(mlp.gate_up(read), self._gelu))
            read = add_sum_of_ranks(part, hidden, None if following is None else _weight(following))
        return hidden


def _heads(layer: DecoderLayer, read: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of normalised rows."""
    before: Any = layer.functions.plain_before
    heads = before.projected(read, None, layer.qkv.weight.tensors(), layer.qkv.bias)
    norms = (None if norm is None else norm.weight for norm in (layer.norm_q, layer.norm_k))
    made: tuple[Tensor, Tensor, Tensor] = before.rotated_by_kernel(heads, *rotation, *norms)
    return made


def _are_summed(layer: DecoderLayer) -> bool:
    """Whether it is a layer for this."""
    shape, before, mlp = layer.shape, layer.functions.plain_before, layer.mlp
    if shape.part is None:  # as of a draft model, which each rank has whole: there is nothing to sum
        return False
    if not isinstance(before, Before) or not before.has_rotation_kernel or layer.forms != Forms():
        return False
    if shape.norm_results or shape.parallel or shape.residual_scale != 1.0 or not shape.gated:
        return False
    assert isinstance(mlp, DenseMlp), "its forms have no experts"
    norms = shape.norm in RMS and None not in (layer.norm_before_attention, layer.norm_before_mlp)
    return norms and layer.out.bias is mlp.gate_up.bias is mlp.down.bias is None


def _of(norm: RowNorm | None) -> RowNorm:
    assert norm is not None
    return norm


def _weight(norm: RowNorm) -> tuple[Tensor, float]:
    return norm.weight, norm.eps
