"""EAGLE-3 (Li et al. 2025): states of three layers of the model joined by one matrix, attention over token and state
next to each other, an output matrix of its own over the tokens that it can draft.
"""

from dataclasses import replace

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from graphpod_policy import SpeculativeMethod
from graphpod_policy.model.architectures import Norm
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.distributed.collectives import columns_of_ranks
from graphpod_runtime.models.decoder import DecoderBody
from graphpod_runtime.models.decoder_targets import layer_targets, linear_targets, norm_targets
from graphpod_runtime.models.heads.draft_head import DraftHead, joined
from graphpod_runtime.models.layers.layer import DecoderLayer
from graphpod_runtime.models.model import Model
from graphpod_runtime.models.norm import RowNorm
from graphpod_runtime.models.parts import cuts_of
from graphpod_runtime.models.tensor_destination import Destination, Target
from graphpod_runtime.models.weights.linear import Linear

LAYER = "midlayer"
"""Beginning of its tensors' names."""


def read_layers(layers: int) -> tuple[int, ...]:
    """In front of which layers of a model with so many the states are read, as its authors, SGLang and vLLM have it."""
    return tuple(sorted({2, layers // 2, layers - 3}))


class Eagle3Head(DraftHead):
    """It reads states as they enter three layers, and predicts states without a norm."""

    method = SpeculativeMethod.Eagle3

    def __init__(
        self, shape: ModelShape, model: Model, dtype: torch.dtype, max_model_len: int, draft_vocab: int
    ) -> None:
        """It drafts `draft_vocab` tokens. Ranks share the rows of its output matrix as they do the model's."""
        super().__init__(replace(shape, bare_input=True, layers=1), model)
        hidden, self.draft_vocab, self.states_width = shape.hidden, draft_vocab, 3 * shape.hidden
        self.reads = read_layers(model.shape.layers)
        self.fc = Linear(3 * hidden, (hidden,), dtype, None, bias=False)
        norms = (RowNorm(Norm.Rms, (hidden,), shape.norm_eps, dtype) for _ in range(3))
        self.norm_token, self.norm_state, self.norm = norms
        self.body = DecoderBody(self.shape, dtype, max_model_len)
        self._layer = self.body.layers[0]
        assert isinstance(self._layer, DecoderLayer)
        heads = tuple(count * shape.head_dim for count in (shape.heads, shape.kv_heads, shape.kv_heads))
        self._layer.qkv = Linear(2 * hidden, heads, dtype, None, bias=shape.qkv_bias)
        rows = draft_vocab if shape.part is None else draft_vocab // shape.part.ranks
        self.output = nn.Parameter(torch.empty(rows, hidden, dtype=dtype), requires_grad=False)
        self.register_buffer("distances", torch.zeros(draft_vocab, dtype=torch.int64))
        self.register_buffer("ids", torch.arange(draft_vocab))

    distances: Tensor
    """Of the model's token from each row of the output matrix."""
    ids: Tensor

    def entering(self, read: Tensor) -> Tensor:
        states: Tensor = self.fc(read)
        return states

    def forward(self, tokens: Tensor, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        layer, body = self._layer, self.body
        assert isinstance(layer, DecoderLayer)
        both = joined(self.norm_token(self.embed(tokens)), self.norm_state(states))
        attended = layer.attended(both, body.cosines[positions], body.sines[positions], attend)
        return layer.behind(attended, states)

    def scores(self, states: Tensor) -> Tensor:
        logits = functional.linear(self.norm(states), self.output)
        return logits if self.shape.part is None else columns_of_ranks(logits, self.shape.part.ranks)

    def tokens(self, drafts: Tensor) -> Tensor:
        return (self.ids + self.distances).index_select(0, drafts)

    def targets(self) -> dict[str, Destination]:
        layer = self._layer
        assert isinstance(layer, DecoderLayer)
        return {
            **linear_targets("fc", self.fc, 0, self.shape.hidden),
            **{f"{LAYER}.{name}": one for name, one in layer_targets(layer).items()},
            **norm_targets(f"{LAYER}.input_layernorm", self.norm_token),
            **norm_targets(f"{LAYER}.hidden_norm", self.norm_state),
            **norm_targets("norm", self.norm),
            "lm_head.weight": Target(self.output, 0, len(self.output), cut=cuts_of(self.shape).rows),
        }
