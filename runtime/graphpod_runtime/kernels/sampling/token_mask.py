"""Rows of logits, less the tokens that a packed mask does not allow."""

from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

BITS = 32
"""Tokens of one word of a mask."""


class MaskRows(Protocol):
    """A way to mask."""

    def __call__(self, logits: Tensor, rows: Tensor, bits: Tensor) -> Tensor:
        """A copy of logits [batch, vocab] in which tokens of `rows` [masked], int64, are -inf unless their bit is set:
        bit i % 32 of bits [masked, ceil(vocab / 32)], int32, at word i // 32. The host does not wait for the device.
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


def mask_by_torch(logits: Tensor, rows: Tensor, bits: Tensor) -> Tensor:
    """Is a MaskRows, for any device."""
    shifts = torch.arange(BITS, dtype=torch.int32, device=bits.device)
    allowed = (bits[:, :, None] >> shifts).bitwise_and_(1).flatten(1)[:, : logits.shape[1]].bool()
    return logits.index_copy(0, rows, logits[rows].masked_fill_(allowed.logical_not_(), -torch.inf))
