"""Mixtures of experts without a read on the host, by transformers' experts interface.

Few tokens gather the weights of their experts, as transformers' `batched_mm` does; that copies as many matrices as
there are choices. More tokens pass every expert, and what was not chosen is multiplied by 0: no more memory than one
expert's result, for experts / choices times the arithmetic.
"""

from torch import Tensor, nn
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, batched_mm_experts_forward

from graphpod_runtime.kernels.mixture.plain_experts import every_expert

NAME = "graphpod"
"""Of these experts among theirs."""


def _experts(module: nn.Module, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    gathers = top_k_index.numel() <= module.num_experts
    return (batched_mm_experts_forward if gathers else _every_expert)(module, hidden_states, top_k_index, top_k_weights)


def _every_expert(module: nn.Module, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """[tokens, hidden], [tokens, choices], [tokens, choices] -> [tokens, hidden]"""
    return every_expert(
        hidden_states,
        top_k_index,
        top_k_weights,
        module.num_experts,
        lambda expert: _of_expert(module, expert, hidden_states),
    )


def _of_expert(module: nn.Module, expert: int, hidden: Tensor) -> Tensor:
    """What one expert makes of every token."""
    up = module.gate_up_proj if module.has_gate else module.up_proj
    computed = _product(hidden, up[expert], transposed=module.is_transposed)
    if module.has_bias:
        computed = computed + (module.gate_up_proj_bias if module.has_gate else module.up_proj_bias)[expert]
    computed = module._apply_gate(computed) if module.has_gate else module.act_fn(computed)
    computed = _product(computed, module.down_proj[expert], transposed=module.is_transposed)
    if module.has_bias:
        computed = computed + module.down_proj_bias[expert]
    return module.post_expert_norm(computed) if module.has_post_expert_norm else computed


def _product(x: Tensor, weight: Tensor, *, transposed: bool) -> Tensor:
    return x @ weight if transposed else nn.functional.linear(x, weight)


def register() -> None:
    """Makes these experts known to transformers."""
    if NAME not in ALL_EXPERTS_FUNCTIONS.valid_keys():
        ALL_EXPERTS_FUNCTIONS.register(NAME, _experts)
