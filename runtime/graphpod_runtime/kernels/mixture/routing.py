"""Which experts compute a token, and in which order their rows lie, without a read on the host.

The choices are those of each family's router in transformers (`modeling_mixtral.py`, `modeling_qwen3_moe.py` and
others): the `chosen` largest scores. The weights are its softmax in single precision, over all experts or over the
chosen ones; some families round them to the type of the scores, and here they stay as they are. Mixtral divides a
softmax over all by the sum of the chosen, which is the softmax over the chosen. DeepSeek-V2 may choose among the
experts of a few groups only, and multiplies the weights by a factor.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from graphpod_policy.model.mixture import Mixture
from graphpod_runtime.base.pinned_choices import settled
from graphpod_runtime.kernels.matrix_product import TRITON
from graphpod_runtime.kernels.mixture.choice_totals import totals_of

torch.library.define(
    "graphpod::route",
    "(Tensor scores, int chosen, bool normalised, int groups, int chosen_groups, float scale, "
    "int first, int held) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
)
"""An op of its own: its choices are the same whoever calls it, compiled or not, and `pinned_choices` can hold them."""


class Routes(NamedTuple):
    """Pairs of a token and a chosen expert. They lie in rows by their experts, and within an expert by their tokens."""

    weights: Tensor
    """[tokens, chosen], float32: of each expert's result."""
    choices: Tensor
    """[tokens, chosen]: the expert of each pair."""
    tokens: Tensor
    """[tokens · chosen]: the token of each row."""
    rows: Tensor
    """[tokens, chosen]: the row of each pair."""
    ends: Tensor
    """[held], int32: where the rows of each expert that a rank has end, behind those of the experts before it. Rows of
    experts that it does not have come last."""


def route(scores: Tensor, mixture: Mixture) -> Routes:
    """scores [tokens, experts] -> the chosen experts of each token, and their weights, as `mixture` says."""
    how = (mixture.chosen, mixture.normalised, mixture.groups, mixture.chosen_groups, mixture.scale)
    return Routes(*torch.ops.graphpod.route(scores, *how, mixture.first, len(mixture.held)))


@torch.library.impl("graphpod::route", "CompositeExplicitAutograd")
def _route(
    scores: Tensor,
    chosen: int,
    normalised: bool,
    groups: int,
    chosen_groups: int,
    scale: float,
    first: int,
    held: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    count, experts = scores.shape
    choices, weights = _chosen(scores, chosen, normalised, groups, chosen_groups, scale)
    ordered, pairs = _own_first(choices, experts, first, held).flatten().sort(stable=True)
    rows = torch.empty_like(pairs)
    rows[pairs] = torch.arange(count * chosen, device=scores.device)
    numbers = torch.arange(held, device=scores.device)
    ends = torch.searchsorted(ordered, numbers, right=True, out_int32=True)
    if (totals := totals_of(scores, first, held)) is not None:
        totals += torch.searchsorted(ordered, torch.arange(experts, device=scores.device), right=True)
    return weights, choices, pairs // chosen, rows.view(count, chosen), ends


@torch.library.impl("graphpod::route", "cuda")
def _route_by_kernels(
    scores: Tensor,
    chosen: int,
    normalised: bool,
    groups: int,
    chosen_groups: int,
    scale: float,
    first: int,
    held: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Two or three launches, where torch's operators are some fourteen: on an H100 5 µs instead of 30 for one token of
    128 experts."""
    if not TRITON:
        return _route(scores, chosen, normalised, groups, chosen_groups, scale, first, held)
    from graphpod_runtime.kernels.mixture.routing_triton import chosen_experts, sorted_rows

    if groups == 1:
        best, weights = chosen_experts(scores.contiguous(), chosen, normalised, scale)
        if (choices := settled(best, scores)) is not best:
            weights = _weights(scores, choices, normalised, scale)
    else:
        choices, weights = _chosen(scores, chosen, normalised, groups, chosen_groups, scale)
    experts = scores.shape[1]
    totals = totals_of(scores, first, held)
    tokens, rows, ends = sorted_rows(_own_first(choices, experts, first, held), experts, totals)
    return weights, choices, tokens, rows, ends if held == experts else ends[:held].clone()


def _own_first(choices: Tensor, experts: int, first: int, held: int) -> Tensor:
    """`choices`, counted from a rank's first expert on, round and round: its own come before all others."""
    return choices if held == experts else (choices - first).remainder(experts)


def _chosen(
    scores: Tensor, chosen: int, normalised: bool, groups: int, chosen_groups: int, scale: float
) -> tuple[Tensor, Tensor]:
    wide = scores.float()
    allowed = wide if groups == 1 else _within_groups(wide, groups, chosen_groups)
    choices = settled(allowed.topk(chosen, dim=-1).indices, scores)
    return choices, _weights(scores, choices, normalised, scale)


def _weights(scores: Tensor, choices: Tensor, normalised: bool, scale: float) -> Tensor:
    wide = scores.float()
    weights = wide.gather(1, choices).softmax(-1) if normalised else wide.softmax(-1).gather(1, choices)
    return weights if scale == 1.0 else weights * scale


def _within_groups(scores: Tensor, groups: int, chosen: int) -> Tensor:
    """`scores` [tokens, experts] of the `chosen` groups of each token, those of the largest scores; others are -inf."""
    by_group = scores.unflatten(1, (groups, -1))
    taken = by_group.amax(-1).topk(chosen, dim=-1).indices
    outside = torch.ones(by_group.shape[:2], dtype=torch.bool, device=scores.device).scatter_(1, taken, False)
    return by_group.masked_fill(outside[:, :, None], float("-inf")).flatten(1)


@torch.library.register_fake("graphpod::route")
def _shapes(
    scores: Tensor,
    chosen: int,
    normalised: bool,
    groups: int,
    chosen_groups: int,
    scale: float,
    first: int,
    held: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    count, _ = scores.shape
    return (
        scores.new_empty(count, chosen, dtype=torch.float32),
        scores.new_empty(count, chosen, dtype=torch.int64),
        scores.new_empty(count * chosen, dtype=torch.int64),
        scores.new_empty(count, chosen, dtype=torch.int64),
        scores.new_empty(held, dtype=torch.int32),
    )
