"""A mixture of experts: a router, the experts' matrices in two stacks, and perhaps one expert for every token."""

import torch
from torch import Tensor, nn

from graphpod_policy.model.mixture import Mixture
from graphpod_runtime.base.shapes import Activation
from graphpod_runtime.kernels.activation import gated
from graphpod_runtime.kernels.matrix_product import product
from graphpod_runtime.kernels.mixture.expert_rows import expert_rows, has_kernel
from graphpod_runtime.kernels.mixture.grouped_product import grouped_product, is_built
from graphpod_runtime.kernels.mixture.plain_experts import plain_experts
from graphpod_runtime.kernels.mixture.routing import Routes, route
from graphpod_runtime.models.weights.product import Arguments, Tensors


class Experts(nn.Module):
    """The stacks are [held, 2 · width, hidden] and [held, hidden, width], of a rank's experts: gate above up, and
    down."""

    def __init__(self, mixture: Mixture, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.mixture = mixture
        held, width, shared = len(mixture.held), mixture.width, mixture.shared

        def unset(*sizes: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(sizes, dtype=dtype), requires_grad=False)

        self.router = unset(mixture.experts, hidden)
        self.gate_up = unset(held, 2 * width, hidden)
        self.down = unset(held, hidden, width)
        self.shared_gate = unset(1, hidden) if shared and mixture.shared_gate else None
        self.shared_gate_up = unset(2 * shared, hidden) if shared else None
        self.shared_down = unset(hidden, shared) if shared else None

    def arguments(self) -> Arguments:
        """As a dense MLP's, for `mixed`: what reads the layer's input, no bias, what gives its result, no bias."""
        wide = self.router, self.gate_up, self.shared_gate, self.shared_gate_up
        return wide, None, (self.down, self.shared_down), None


def mixed(mixture: Mixture, x: Tensor, wide: Tensors, down: Tensors, activation: Activation) -> Tensor:
    """What experts make of x [tokens, hidden], by the tensors of `Experts.arguments` -> [tokens, hidden].

    Each chosen expert is down(act(gate(x)) · up(x)). Its results are added by their weights in single precision, and
    rounded once. Of a rank it is the part of the experts that it has, or of its columns of them.
    """
    (router, gate_up, shared_gate, shared_gate_up), (last, shared_last) = wide, down
    assert router is not None
    assert gate_up is not None
    assert last is not None
    routes = route(_scores(mixture, x, router), mixture)
    if has_kernel(x) or (is_built(x, gate_up) and is_built(x, last)):
        total = _by_rows(mixture, x, gate_up, last, routes, activation)
    else:
        choices = routes.choices - mixture.first if mixture.own else routes.choices
        total = plain_experts(x, gate_up, last, choices, routes.weights, activation)
    if shared_gate_up is None or shared_last is None:
        return total
    made = product(gated(activation, product(x, shared_gate_up)), shared_last)
    return total + (made if shared_gate is None else product(x, shared_gate).sigmoid() * made)


def _scores(mixture: Mixture, x: Tensor, router: Tensor) -> Tensor:
    """Of each expert for each token: [tokens, experts]"""
    return product(x.float(), router.float()) if mixture.wide_scores else product(x, router)


def _by_rows(
    mixture: Mixture, x: Tensor, gate_up: Tensor, down: Tensor, routes: Routes, activation: Activation
) -> Tensor:
    """A row for each pair of a token and a chosen expert. They are the widest tensors here, and none has a name while
    the next is made: it would be kept for longer than it is read."""
    if has_kernel(x):
        made = expert_rows(x, gate_up, down, routes.tokens, routes.ends, activation)
    else:
        made = grouped_product(
            gated(activation, grouped_product(x[routes.tokens], gate_up, routes.ends)), down, routes.ends
        )
    made = made[routes.rows].float()
    if mixture.own:
        # Rows of experts that other ranks have lie behind the last end, and no product has written them.
        theirs = (routes.choices < mixture.held.start) | (routes.choices >= mixture.held.stop)
        made = made.masked_fill_(theirs[:, :, None], 0.0)
    return made.mul_(routes.weights[:, :, None]).sum(1).to(x.dtype)
