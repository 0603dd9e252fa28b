"""Llama family: pre-norm decoder with rotary positions, grouped-query attention and a gated MLP. Qwen2 is one with
biases on q, k and v; Qwen3 is one with normalised q and k."""

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from graphpod_runtime.layers.norm import RmsNorm
from graphpod_runtime.layers.rope import rope_tables
from graphpod_runtime.models.base import Attend, ModelShape, Target
from graphpod_runtime.models.halves import Halves


class Linear(nn.Module):
    """x · weightᵀ (+ bias). `weight` is [out, in] and may hold several fused projections."""

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=dtype), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs, dtype=dtype), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class LlamaLayer(nn.Module):
    """One layer. q, k and v are one matrix, gate and up are another: two reads of the input instead of five."""

    def __init__(self, shape: ModelShape, index: int, dtype: torch.dtype, halves: Halves) -> None:
        super().__init__()
        self.index, self.halves = index, halves
        attention = shape.heads * shape.head_dim
        self.norm_before_attention = RmsNorm(shape.hidden, shape.norm_eps, dtype)
        heads = attention + 2 * shape.kv_heads * shape.head_dim
        self.qkv = Linear(shape.hidden, heads, dtype, bias=shape.qkv_bias)
        self.norm_q = RmsNorm(shape.head_dim, shape.norm_eps, dtype) if shape.qk_norm else None
        self.norm_k = RmsNorm(shape.head_dim, shape.norm_eps, dtype) if shape.qk_norm else None
        self.out = Linear(attention, shape.hidden, dtype)
        self.norm_before_mlp = RmsNorm(shape.hidden, shape.norm_eps, dtype)
        self.gate_up = Linear(shape.hidden, 2 * shape.intermediate, dtype)
        self.down = Linear(shape.intermediate, shape.hidden, dtype)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, attend: Attend) -> Tensor:
        """x [tokens, hidden], tables [tokens, 1, head_dim] -> [tokens, hidden]"""
        # q, k and v get no names: they would keep their memory, a fifth of a graph pool, until the layer's end.
        attended = attend(
            self.index,
            *self.halves.before(
                x,
                cosines,
                sines,
                self.norm_before_attention.weight,
                self.qkv.weight,
                self.qkv.bias,
                None if self.norm_q is None else self.norm_q.weight,
                None if self.norm_k is None else self.norm_k.weight,
            ),
        )
        result: Tensor = self.halves.after(
            attended,
            x,
            self.out.weight,
            self.norm_before_mlp.weight,
            self.gate_up.weight,
            self.down.weight,
        )
        return result


class LlamaBody(nn.Module):
    """All layers: a Body."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, shape: ModelShape, dtype: torch.dtype, max_model_len: int) -> None:
        super().__init__()
        self.halves = Halves(shape)
        self.layers = nn.ModuleList(LlamaLayer(shape, index, dtype, self.halves) for index in range(shape.layers))
        # The tables are computed, never loaded: they must be real even while the weights are on the meta device.
        with torch.device("cpu"):
            cosines, sines = rope_tables(max_model_len, shape.head_dim, shape.rope_theta, dtype)
        self.register_buffer("cosines", cosines)
        self.register_buffer("sines", sines)

    def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        cosines, sines = self.cosines[positions], self.sines[positions]
        for layer in self.layers:
            hidden = layer(hidden, cosines, sines, attend)
        return hidden


class Llama(nn.Module):
    """A Model of the Llama family."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, max_model_len: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(torch.empty(shape.vocab, shape.hidden, dtype=dtype), requires_grad=False)
        self.body = LlamaBody(shape, dtype, max_model_len)
        self.norm = RmsNorm(shape.hidden, shape.norm_eps, dtype)
        self.output = (
            self.embedding
            if shape.tied
            else nn.Parameter(torch.empty(shape.vocab, shape.hidden, dtype=dtype), requires_grad=False)
        )

    def embed(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.embedding)

    def head(self, hidden: Tensor) -> Tensor:
        return functional.linear(self.norm(hidden), self.output)

    def compile_halves(self) -> None:
        self.body.halves.compile()

    def module(self) -> nn.Module:
        return self

    def targets(self) -> dict[str, Target]:
        shape = self.shape
        q_rows, kv_rows = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        targets = {
            "model.embed_tokens.weight": _whole(self.embedding),
            "model.norm.weight": _whole(self.norm.weight),
        }
        if not shape.tied:
            targets["lm_head.weight"] = _whole(self.output)
        for index, layer in enumerate(self.body.layers):
            assert isinstance(layer, LlamaLayer)
            qkv, gate_up = layer.qkv.weight, layer.gate_up.weight
            thirds = (("q", 0, q_rows), ("k", q_rows, kv_rows), ("v", q_rows + kv_rows, kv_rows))
            prefix = f"model.layers.{index}"
            if layer.qkv.bias is not None:
                for letter, first, rows in thirds:
                    targets[f"{prefix}.self_attn.{letter}_proj.bias"] = Target(layer.qkv.bias, first, rows)
            if layer.norm_q is not None and layer.norm_k is not None:
                targets[f"{prefix}.self_attn.q_norm.weight"] = _whole(layer.norm_q.weight)
                targets[f"{prefix}.self_attn.k_norm.weight"] = _whole(layer.norm_k.weight)
            targets |= {
                f"{prefix}.{name}.weight": target
                for name, target in {
                    "input_layernorm": _whole(layer.norm_before_attention.weight),
                    **{f"self_attn.{letter}_proj": Target(qkv, first, rows) for letter, first, rows in thirds},
                    "self_attn.o_proj": _whole(layer.out.weight),
                    "post_attention_layernorm": _whole(layer.norm_before_mlp.weight),
                    "mlp.gate_proj": Target(gate_up, 0, shape.intermediate),
                    "mlp.up_proj": Target(gate_up, shape.intermediate, shape.intermediate),
                    "mlp.down_proj": _whole(layer.down.weight),
                }.items()
            }
        return targets


def _whole(parameter: nn.Parameter) -> Target:
    return Target(parameter, 0, parameter.shape[0])
