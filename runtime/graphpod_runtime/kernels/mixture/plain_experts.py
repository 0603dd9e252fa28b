"""A mixture by plain products, where torch's grouped one would read on the host.

Few pairs of a token and a chosen expert gather the matrices of their experts. More pass every expert, all tokens
together: that is experts / chosen times the arithmetic, and reads each matrix once.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.base.shapes import Activation
from graphpod_runtime.kernels.activation import gated

GATHERED_WEIGHTS = 32 * 1024 * 1024
"""Of gate and up, that are copied at once at most, if one expert has no more: pairs are computed in parts."""

torch.library.define(
    "graphpod::plain_experts",
    "(Tensor x, Tensor gate_up, Tensor down, Tensor choices, Tensor weights, bool gelu) -> Tensor",
)
"""An op of its own: its form depends on the number of tokens, which the compiler leaves open."""


def plain_experts(
    x: Tensor, gate_up: Tensor, down: Tensor, choices: Tensor, weights: Tensor, activation: Activation
) -> Tensor:
    """What the chosen experts make of x [tokens, hidden], added by their weights in single precision and rounded once.

    `gate_up` [experts, 2 · width, hidden], `down` [experts, hidden, width]; `choices`, `weights` [tokens, chosen].
    Choices below 0, or of as many experts and more, are of other ranks, and add nothing.
    """
    gelu = activation is Activation.GeluTanh
    result: Tensor = torch.ops.graphpod.plain_experts(x, gate_up, down, choices, weights, gelu)
    return result


@torch.library.impl("graphpod::plain_experts", "CompositeExplicitAutograd")
def _experts(x: Tensor, gate_up: Tensor, down: Tensor, choices: Tensor, weights: Tensor, gelu: bool) -> Tensor:
    activation = Activation.GeluTanh if gelu else Activation.Silu
    form = _gathered if choices.numel() <= gate_up.shape[0] else _every_expert
    return form(x, gate_up, down, choices, weights, activation)


def _every_expert(
    x: Tensor, gate_up: Tensor, down: Tensor, choices: Tensor, weights: Tensor, activation: Activation
) -> Tensor:
    def of_expert(expert: int) -> Tensor:
        return functional.linear(gated(activation, functional.linear(x, gate_up[expert])), down[expert])

    return every_expert(x, choices, weights, gate_up.shape[0], of_expert)


def every_expert(
    x: Tensor, choices: Tensor, weights: Tensor, experts: int, of_expert: Callable[[int], Tensor]
) -> Tensor:
    """What the chosen experts make of x [tokens, hidden], as `plain_experts`. `of_expert` makes [tokens, hidden] of
    every token by one of `experts`; `choices`, `weights` [tokens, chosen].
    """
    total = torch.zeros_like(x, dtype=torch.float32)
    for expert in range(experts):
        chosen = choices == expert
        weight = (weights * chosen).sum(-1, keepdim=True)
        # Not multiplied by 0: an expert that no token chose may overflow.
        total += torch.where(chosen.any(-1, keepdim=True), of_expert(expert) * weight, 0.0)
    return total.to(x.dtype)


def _gathered(
    x: Tensor, gate_up: Tensor, down: Tensor, choices: Tensor, weights: Tensor, activation: Activation
) -> Tensor:
    tokens, chosen = choices.shape
    at_once = max(1, GATHERED_WEIGHTS // gate_up[0].numel())
    rows = x[:, None].expand(-1, chosen, -1).reshape(tokens * chosen, -1)
    parts = []
    own = choices.clamp(0, gate_up.shape[0] - 1)
    for pairs, experts in zip(rows.split(at_once), own.flatten().split(at_once), strict=True):
        wide = torch.bmm(gate_up[experts], pairs[:, :, None])[:, :, 0]
        parts.append(torch.bmm(down[experts], gated(activation, wide)[:, :, None])[:, :, 0])
    made = torch.cat(parts).view(tokens, chosen, -1).float()
    # Not multiplied by 0: an expert that another rank's choice reads in its place may overflow.
    made = made.masked_fill_((own != choices)[:, :, None], 0.0)
    return made.mul_(weights[:, :, None]).sum(1).to(x.dtype)


@torch.library.register_fake("graphpod::plain_experts")
def _shape(x: Tensor, gate_up: Tensor, down: Tensor, choices: Tensor, weights: Tensor, gelu: bool) -> Tensor:
    return torch.empty_like(x)
