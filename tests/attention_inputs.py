"""Inputs as attention reads them, of passes that are attention alone."""

import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_runtime.base.inputs import Inputs


def attention_inputs(slots: Tensor, tables: Tensor, lengths: Tensor, starts: Tensor) -> Inputs:
    """Their tokens and positions are 0: attention reads neither."""
    phase = Phase.Decode if lengths.shape == slots.shape else Phase.Prefill
    unread = torch.zeros_like(slots)
    return Inputs(phase, unread, unread, slots, tables, lengths, starts, yields=())
