"""The two halves of a layer, before and after attention, as functions whose weights are arguments.

All layers share them, so each is compiled once for the whole model. Rows are a dynamic dimension; torch makes a size of
one a case of its own, which is a second compile and the last.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.graphs.opaque import Opaque
from graphpod_runtime.layers.norm import rms_norm
from graphpod_runtime.layers.rope import apply_rope
from graphpod_runtime.models.base import Activation, ModelShape

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Before:
    """Norm, q/k/v projection, rotation: x [tokens, hidden] -> q [tokens, heads, d], k and v [tokens, kv_heads, d]."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float

    def __call__(
        self,
        x: Tensor,
        cosines: Tensor,
        sines: Tensor,
        norm: Tensor,
        qkv: Tensor,
        bias: Tensor | None,
        norm_q: Tensor | None,
        norm_k: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        heads = functional.linear(rms_norm(x, norm, self.eps), qkv, bias)
        heads = heads.view(x.shape[0], -1, self.head_dim)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if norm_q is not None and norm_k is not None:
            q = apply_rope(rms_norm(q, norm_q, self.eps), cosines, sines)
            k = apply_rope(rms_norm(k, norm_k, self.eps), cosines, sines)
        else:
            rotated = apply_rope(heads[:, : self.heads + self.kv_heads], cosines, sines)
            q, k = rotated.split((self.heads, self.kv_heads), dim=1)
        return q, k, v


@dataclass(frozen=True, slots=True)
class After:
    """Output projection, norm, gated MLP: attended [tokens, heads · d] and x [tokens, hidden] -> [tokens, hidden].

    The results of attention and MLP are normalised before they are added where there are weights for it.
    """

    eps: float
    activation: Activation

    def __call__(
        self,
        attended: Tensor,
        x: Tensor,
        out: Tensor,
        out_bias: Tensor | None,
        norm_attended: Tensor | None,
        norm: Tensor,
        gate_up: Tensor,
        gate_up_bias: Tensor | None,
        down: Tensor,
        down_bias: Tensor | None,
        norm_result: Tensor | None,
    ) -> Tensor:
        x = x + self._normed(functional.linear(attended, out, out_bias), norm_attended)
        gated = self._gated(rms_norm(x, norm, self.eps), gate_up, gate_up_bias)
        return x + self._normed(functional.linear(gated, down, down_bias), norm_result)

    def _normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else rms_norm(x, weight, self.eps)

    def _gated(self, x: Tensor, gate_up: Tensor, bias: Tensor | None) -> Tensor:
        """[tokens, intermediate]. The widest tensors of a model are here, and size the graph pool: none is kept for
        longer than it is read, and the product takes no third one."""
        gate, up = functional.linear(x, gate_up, bias).chunk(2, dim=-1)
        if self.activation is Activation.GeluTanh:
            return functional.gelu(gate, approximate="tanh").mul_(up)
        return functional.silu(gate).mul_(up)


class Halves:
    """Both, plain until `compile`."""

    def __init__(self, shape: ModelShape) -> None:
        self._before = Before(shape.heads, shape.kv_heads, shape.head_dim, shape.norm_eps)
        self._after = After(shape.norm_eps, shape.activation)
        self.before: Function = self._before
        self.after: Function = self._after
        self.compiles = 0
        """Of all compilations so far."""

    def compile(self) -> None:
        """Compiles at the next calls, by inductor."""
        torch._dynamo.config.fail_on_recompile_limit_hit = True  # it would run eagerly, and say nothing
        self.before = Opaque(self._compiled(self._before, rows_of=3), self._before)
        self.after = Opaque(self._compiled(self._after, rows_of=2), self._after)

    def _compiled(self, function: Before | After, rows_of: int) -> Function:
        """`function` compiled; its first `rows_of` arguments have rows."""
        compiled = torch.compile(function.__call__, fullgraph=True, backend=self._counted)

        def call(*arguments: Tensor | None) -> object:
            # Detached: whether an argument is a parameter or a view is no reason to compile again.
            plain = [None if argument is None else argument.detach() for argument in arguments]
            for argument in plain[:rows_of]:
                assert argument is not None
                if argument.shape[0] > 1:
                    torch._dynamo.mark_dynamic(argument, 0)
            return compiled(*plain)

        return call

    def _counted(self, graph: torch.fx.GraphModule, inputs: Any) -> Function:
        from torch._inductor.compile_fx import compile_fx

        self.compiles += 1
        code: Function = compile_fx(graph, inputs)
        return code
