"""Which experts compute a token, and in which order their rows lie, without a read on the host.

The choices are those of each family's router in transformers (`modeling_mixtral.py`, `modeling_qwen3_moe.py` and
others): the `chosen` largest scores. The weights are its softmax in single precision, over all experts or over the
chosen ones; some families round them to the type of the scores, and here they stay as they are. Mixtral divides a
softmax over all by the sum of the chosen, which is the softmax over the chosen.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.base.pinned_choices import settled

torch.library.define(
    "graphpod::route", "(Tensor scores, int chosen, bool normalised) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
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
    """[experts], int32: where the rows of each expert end, behind those of the experts before it."""


def route(scores: Tensor, chosen: int, normalised: bool) -> Routes:
    """scores [tokens, experts] -> the `chosen` largest of each token. `normalised`: their weights have the sum 1."""
    return Routes(*torch.ops.graphpod.route(scores, chosen, normalised))


@torch.library.impl("graphpod::route", "CompositeExplicitAutograd")
def _route(scores: Tensor, chosen: int, normalised: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    count, experts = scores.shape
    wide = scores.float()
    choices = settled(wide.topk(chosen, dim=-1).indices, scores)
    weights = wide.gather(1, choices).softmax(-1) if normalised else wide.softmax(-1).gather(1, choices)
    ordered, pairs = choices.flatten().sort(stable=True)
    rows = torch.empty_like(pairs)
    rows[pairs] = torch.arange(count * chosen, device=scores.device)
    numbers = torch.arange(experts, device=scores.device)
    ends = torch.searchsorted(ordered, numbers, right=True, out_int32=True)
    return weights, choices, pairs // chosen, rows.view(count, chosen), ends


@torch.library.register_fake("graphpod::route")
def _shapes(scores: Tensor, chosen: int, normalised: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    count, experts = scores.shape
    return (
        scores.new_empty(count, chosen, dtype=torch.float32),
        scores.new_empty(count, chosen, dtype=torch.int64),
        scores.new_empty(count * chosen, dtype=torch.int64),
        scores.new_empty(count, chosen, dtype=torch.int64),
        scores.new_empty(experts, dtype=torch.int32),
    )
