"""EAGLE (Li et al. 2024): one matrix joins token and state, a decoder layer without a norm in front follows."""

from dataclasses import replace

import torch
from torch import Tensor

from graphpod_policy import SpeculativeMethod
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.models.decoder import DecoderBody
from graphpod_runtime.models.decoder_targets import body_targets, linear_targets
from graphpod_runtime.models.heads.draft_head import DraftHead, joined
from graphpod_runtime.models.model import Model
from graphpod_runtime.models.tensor_destination import Destination
from graphpod_runtime.models.weights.linear import Linear


class EagleHead(DraftHead):
    """It reads states behind the model's final norm, and predicts such."""

    method = SpeculativeMethod.Eagle

    def __init__(
        self, shape: ModelShape, model: Model, dtype: torch.dtype, max_model_len: int, *, biased: bool
    ) -> None:
        """`biased`: whether the matrix that joins has biases; checkpoints differ."""
        super().__init__(replace(shape, bare_input=True), model)
        self.fc = Linear(2 * shape.hidden, (shape.hidden,), dtype, None, bias=biased)
        self.body = DecoderBody(self.shape, dtype, max_model_len)

    def forward(self, tokens: Tensor, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        following: Tensor = self.body(self.fc(joined(self.embed(tokens), states)), positions, attend)
        return following

    def targets(self) -> dict[str, Destination]:
        return linear_targets("fc", self.fc, 0, self.shape.hidden) | body_targets("layers.{}", self.body)
