"""MTP (multi-token prediction, DeepSeek-V3 2024): a decoder layer that a checkpoint carries next to its model, as MiMo
(Xiaomi 2025) names and orders it.
"""

import torch
from torch import Tensor

from graphpod_policy import SpeculativeMethod
from graphpod_policy.model.architectures import Norm
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.models.decoder import DecoderBody
from graphpod_runtime.models.decoder_targets import body_targets, linear_targets, norm_targets
from graphpod_runtime.models.heads.draft_head import DraftHead, joined
from graphpod_runtime.models.model import Model
from graphpod_runtime.models.norm import RowNorm
from graphpod_runtime.models.tensor_destination import Destination
from graphpod_runtime.models.weights.linear import Linear

LAYERS = "model.mtp_layers."
"""Beginning of its tensors' names; the layer's number follows."""


class MtpHead(DraftHead):
    """It reads states behind the model's final norm, and predicts such: it has a final norm of its own."""

    method = SpeculativeMethod.Mtp

    def __init__(self, shape: ModelShape, model: Model, dtype: torch.dtype, max_model_len: int) -> None:
        super().__init__(shape, model)
        norms = (RowNorm(Norm.Rms, (shape.hidden,), shape.norm_eps, dtype) for _ in range(3))
        self.norm_token, self.norm_state, self.norm = norms
        self.joins = Linear(2 * shape.hidden, (shape.hidden,), dtype, None, bias=False)
        self.body = DecoderBody(shape, dtype, max_model_len)

    def forward(self, tokens: Tensor, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        both = joined(self.norm_state(states), self.norm_token(self.embed(tokens)))
        following: Tensor = self.norm(self.body(self.joins(both), positions, attend))
        return following

    def targets(self) -> dict[str, Destination]:
        layer = f"{LAYERS}0"
        return {
            **linear_targets(f"{layer}.input_proj", self.joins, 0, self.shape.hidden),
            **norm_targets(f"{layer}.token_layernorm", self.norm_token),
            **norm_targets(f"{layer}.hidden_layernorm", self.norm_state),
            **norm_targets(f"{layer}.final_layernorm", self.norm),
            **body_targets(f"{LAYERS}{{}}", self.body),
        }
