"""A head that drafts for a model: a layer that predicts the model's next hidden state.

Its row of place i is the model's hidden state there next to the token behind it. From both it predicts the state of
place i + 1, of which logits are made. A draft's row has the head's own prediction in place of the model's state.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphpod_policy import SpeculativeMethod
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.shapes import KvScale, ModelShape
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.models.decoder import DecoderBody
from graphpod_runtime.models.model import Model
from graphpod_runtime.models.tensor_destination import Destination


class DraftHead(nn.Module, ABC):
    """Of one model, whose embedding and output matrix it uses where it has none. Ranks share its layers as they do the
    model's: each step has sums over ranks anyway, in the embedding, and half of a layer is read in half of the time.
    What joins token and state each rank has whole, so the states that it gives are whole, too."""

    method: ClassVar[SpeculativeMethod]
    draft_vocab = 0
    """Rows of an output matrix of its own."""
    reads: tuple[int, ...] = ()
    """In front of which layers of the model it reads states; (): behind the last one."""
    body: DecoderBody

    def __init__(self, shape: ModelShape, model: Model) -> None:
        super().__init__()
        self.shape = shape
        self.kv_scales = (KvScale(),) * shape.layers
        # Scales of an FP8 cache are 1, and nothing to warn of: a head changes no answer.
        self.unscaled_layers: tuple[int, ...] = ()
        self.sinks: tuple[Tensor | None, ...] = ()
        # Methods, not the model: its weights are not this module's.
        self.embed, self._final, self._logits = model.embed, model.final, model.logits
        self.states_width = model.shape.hidden
        """Elements of what is read of the model for each token."""

    def entering(self, read: Tensor) -> Tensor:
        """[rows, states_width] of the model -> states [rows, hidden]"""
        return self._final(read)

    @abstractmethod
    def forward(self, tokens: Tensor, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Tokens [rows] next to the states [rows, hidden] in front of them -> the next states. `states` are given
        away."""

    def scores(self, states: Tensor) -> Tensor:
        """[rows, hidden] that `forward` gave -> logits of what it can draft [rows, tokens]"""
        return self._logits(states)

    def tokens(self, drafts: Tensor) -> Tensor:
        """The model's tokens, of what it can draft [any]."""
        return drafts

    def likeliest(self, states: Tensor) -> Tensor:
        """[rows, hidden] that `forward` gave -> the model's tokens [rows]"""
        return self.tokens(self.scores(states).argmax(-1))

    def branches(self, states: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """[rows, hidden] that `forward` gave -> the model's `count` likeliest tokens [rows, count], and their
        log-probabilities: numbers, whatever the states are."""
        best = self.scores(states).float().log_softmax(-1).topk(count)
        drafts = self.tokens(best.indices.flatten()).view_as(best.indices)
        return drafts, best.values.nan_to_num(nan=-torch.inf, neginf=-torch.inf).clamp(max=0.0)

    @abstractmethod
    def targets(self) -> dict[str, Destination]:
        """For each tensor name of a checkpoint: where it goes."""

    def compile_halves(self, cache: CompileCache | None) -> int:
        """As a Model's."""
        return sum(functions.compile(cache) for functions in self.body.functions.values())

    def module(self) -> nn.Module:
        """Itself."""
        return self


def joined(first: Tensor, second: Tensor) -> Tensor:
    """Rows of both next to each other."""
    return torch.cat((first, second), -1)
