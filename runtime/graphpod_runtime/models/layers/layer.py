"""One layer of a decoder: its weights, and its two halves over them."""

import torch
from torch import Tensor, nn

from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.models.attention.projections import projections
from graphpod_runtime.models.layers.layer_functions import Forms, LayerFunctions
from graphpod_runtime.models.mlp.dense import DenseMlp
from graphpod_runtime.models.mlp.experts import Experts
from graphpod_runtime.models.norm import NormTensors, RowNorm


def norm_of(shape: ModelShape, dtype: torch.dtype) -> RowNorm:
    """A row's."""
    return RowNorm(shape.norm, (shape.hidden,), shape.norm_eps, dtype)


class DecoderLayer(nn.Module):
    """One layer. q, k and v are one matrix, gate and up are another: two reads of the input instead of five."""

    functions: LayerFunctions
    """Set by the body, which shares them among layers."""

    def __init__(self, shape: ModelShape, index: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape, self.index = shape, index
        bare = not shape.norm_inputs or (index == 0 and shape.bare_input)
        self.norm_before_attention = None if bare else norm_of(shape, dtype)
        self.qkv, self.norm_q, self.norm_k, self.out = projections(shape, index, dtype)
        self.norm_attended = norm_of(shape, dtype) if shape.norm_results else None
        self.norm_before_mlp = self.norm_before_attention
        if not shape.parallel:
            self.norm_before_mlp = norm_of(shape, dtype) if shape.norm_inputs else None
        mixture = shape.experts(index)
        self.mlp = DenseMlp(shape, index, dtype) if mixture is None else Experts(mixture, shape.hidden, dtype)
        self.norm_result = norm_of(shape, dtype) if shape.norm_results else None

    @property
    def forms(self) -> Forms:
        attention = self.qkv.weight.form, self.out.weight.form
        if isinstance(self.mlp, Experts):
            # Not which layers have it: they share what is compiled.
            return Forms(*attention, mixture=self.mlp.mixture._replace(layers=()))
        return Forms(*attention, self.mlp.gate_up.weight.form, self.mlp.down.weight.form)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, attend: Attend) -> Tensor:
        """x [tokens, hidden], tables [tokens, 1, head_dim] -> [tokens, hidden]"""
        return self.behind(self.attended(x, cosines, sines, attend), x)

    def behind(self, attended: Tensor, x: Tensor) -> Tensor:
        """What follows attention over x: [tokens, heads · d] and x -> [tokens, hidden]; x is given away."""
        result: Tensor = self.functions.after(
            attended,
            x,
            self.out.weight.tensors(),
            self.out.bias,
            _tensors(self.norm_attended),
            _tensors(self.norm_before_mlp),
            *self.mlp.arguments(),
            _tensors(self.norm_result),
        )
        return result

    def attended(self, x: Tensor, cosines: Tensor, sines: Tensor, attend: Attend) -> Tensor:
        """Attention over x: [tokens, heads · d]."""
        # A method of its own: q, k and v keep their memory, a fifth of a graph pool, until it returns.
        q, k, v = self.functions.before(
            x,
            cosines,
            sines,
            _tensors(self.norm_before_attention),
            self.qkv.weight.tensors(),
            self.qkv.bias,
            None if self.norm_q is None else self.norm_q.weight,
            None if self.norm_k is None else self.norm_k.weight,
        )
        return attend(self.index, q, k, v)


def _tensors(norm: RowNorm | None) -> NormTensors | None:
    return None if norm is None else norm.tensors()
