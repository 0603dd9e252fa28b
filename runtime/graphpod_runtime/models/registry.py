"""Building a model of an architecture that this engine knows."""

import torch

from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.model import Model


def build(shape: ModelShape, dtype: torch.dtype, max_model_len: int) -> Model:
    """The model with unset weights."""
    return Decoder(shape, dtype, max_model_len)
