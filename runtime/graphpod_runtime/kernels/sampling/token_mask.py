"""Logits less the tokens that packed masks do not allow, and the greedy tokens of what is left."""

from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

BITS = 32
"""Tokens of one word of a mask."""
NO_MASK = -1
"""In the place of a row's mask."""


class MaskRows(Protocol):
    """A way to mask."""

    def __call__(
        self, logits: Tensor, chosen: Tensor, which: Tensor, bits: Tensor, nothing: int
    ) -> tuple[Tensor, Tensor]:
        """A copy of logits [batch, vocab] in which tokens are -inf unless the mask of their row has their bit; and the
        greedy tokens [batch] of that.

        which [batch], int32, is the index of a row's mask, or NO_MASK. Token i is bit i % 32 of bits [masks,
        ceil(vocab / 32)], int32, at word i // 32. `chosen` [batch] are the greedy tokens without masks: they stay
        where there is none, and where they are negative. A row without a token left has `nothing`. The host does not
        wait for the device.
        """


def words_of(vocabulary: int) -> int:
    """Of the mask of one row."""
    return -(-vocabulary // BITS)


def masker_for(device: torch.device) -> MaskRows:
    """The fastest one of `device`."""
    if device.type != "cuda" or find_spec("triton") is None:
        return mask_by_torch
    from graphpod_runtime.kernels.sampling.token_mask_triton import mask_rows

    return mask_rows


def mask_by_torch(logits: Tensor, chosen: Tensor, which: Tensor, bits: Tensor, nothing: int) -> tuple[Tensor, Tensor]:
    """Is a MaskRows, for any device."""
    shifts = torch.arange(BITS, dtype=torch.int32, device=bits.device)
    words = bits.index_select(0, which.clamp(min=0))
    hidden = (words[:, :, None] >> shifts).bitwise_and_(1).flatten(1)[:, : logits.shape[1]] == 0
    logits = logits.masked_fill(hidden.logical_and_((which != NO_MASK)[:, None]), -torch.inf)
    best, tokens = logits.max(dim=-1)
    tokens = tokens.masked_fill_(best.isfinite().logical_not_(), nothing)
    return logits, torch.where((which == NO_MASK) | (chosen < 0), chosen, tokens)
