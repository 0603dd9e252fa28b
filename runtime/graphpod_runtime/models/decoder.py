"""The decoder that every family here is: norm, attention with rotary positions and grouped queries, norm, MLP.

Llama is the plain one. Others have biases, norms of another kind or in other places, heads that are normalised, windows
with rotary positions of their own, an MLP next to attention or without a gate, capped scores, factors of their own.
`ModelShape` says which.
"""

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from graphpod_policy.model.architectures import Norm
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.shapes import KvScale, ModelShape
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.distributed.collectives import columns_of_ranks
from graphpod_runtime.models.layers.layer import DecoderLayer, norm_of
from graphpod_runtime.models.layers.layer_functions import LayerFunctions
from graphpod_runtime.models.layers.summed_layers import SummedLayers
from graphpod_runtime.models.parts import embedded, vocabulary_rows
from graphpod_runtime.models.rope.rope_tables import rope_tables


class DecoderBody(nn.Module):
    """All layers: a Body."""

    cosines: Tensor
    sines: Tensor
    local_cosines: Tensor
    local_sines: Tensor

    def __init__(self, shape: ModelShape, dtype: torch.dtype, max_model_len: int) -> None:
        super().__init__()
        self.shape = shape
        layers = [DecoderLayer(shape, index, dtype) for index in range(shape.layers)]
        self.functions = {forms: LayerFunctions(shape, forms) for forms in dict.fromkeys(one.forms for one in layers)}
        """Of layers by the forms of their weights."""
        for layer in layers:
            layer.functions = self.functions[layer.forms]
        self.layers = nn.ModuleList(layers)
        # The tables are computed, never loaded: they must be real even while the weights are on the meta device.
        with torch.device("cpu"):
            width, rotated = shape.rotary_width, shape.rotated
            tables = rope_tables(max_model_len, width, shape.rope_theta, dtype, shape.stretch, rotated)
            self.register_buffer("cosines", tables[0])
            self.register_buffer("sines", tables[1])
            if shape.local_rope_theta is not None:
                tables = rope_tables(max_model_len, shape.head_dim, shape.local_rope_theta, dtype)
                self.register_buffer("local_cosines", tables[0])
                self.register_buffer("local_sines", tables[1])

    read_layers: tuple[int, ...] = ()
    """In front of which layers a draft head reads states."""
    summed: SummedLayers | None = None
    """What computes passes of a few rows, if anything does."""

    def rotations(self, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Of each layer, cosines and sines [rows, 1, width] by which it rotates."""
        everywhere = within = self.cosines[positions], self.sines[positions]
        if self.shape.local_rope_theta is not None:
            within = self.local_cosines[positions], self.local_sines[positions]
        nowhere = everywhere
        if self.shape.unrotated:
            nowhere = torch.ones_like(everywhere[0]), torch.zeros_like(everywhere[1])
        return [
            nowhere if index in self.shape.unrotated else everywhere if self.shape.window(index) is None else within
            for index in range(len(self.layers))
        ]

    def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor | tuple[Tensor, Tensor]:
        """What the layers give; where a head reads layers, next to it their states [tokens, layers · hidden]."""
        rotations = self.rotations(positions)
        if self.summed is not None and not self.read_layers and self.summed.take(hidden):
            return self.summed(hidden, rotations, attend)
        states: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            if index in self.read_layers:
                # A compiled layer adds to its input.
                states.append(hidden.clone())
            hidden = layer(hidden, *rotations[index], attend)
        return (hidden, torch.cat(states, -1)) if states else hidden


class Decoder(nn.Module):
    """A Model of any family here."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, max_model_len: int) -> None:
        super().__init__()
        self.shape = shape
        self.kv_scales = (KvScale(),) * shape.layers
        self.sinks: tuple[Tensor | None, ...] = ()
        self.unscaled_layers = tuple(range(shape.layers))
        read, rows = vocabulary_rows(shape)
        self.embedding = nn.Parameter(torch.empty(read, shape.hidden, dtype=dtype), requires_grad=False)
        self._embedding_scale = shape.embedding_scale
        if shape.norm is Norm.RmsPlusOne:  # Gemma's, in whose model it is a tensor
            self._embedding_scale = torch.tensor(shape.embedding_scale, dtype=dtype, device="cpu").item()
        self.body = DecoderBody(shape, dtype, max_model_len)
        self.norm = norm_of(shape, dtype)
        self.output = (
            self.embedding
            if shape.tied
            else nn.Parameter(torch.empty(rows, shape.hidden, dtype=dtype), requires_grad=False)
        )

    def embed(self, tokens: Tensor) -> Tensor:
        part = self.shape.part
        rows = functional.embedding(tokens, self.embedding) if part is None else embedded(tokens, self.embedding, part)
        return rows if self._embedding_scale == 1.0 else rows * self._embedding_scale

    def embedded(self, dtype: torch.dtype) -> tuple[tuple[int, ...], torch.dtype]:
        return (self.shape.hidden,), dtype

    def head(self, hidden: Tensor) -> Tensor:
        return self.logits(self.norm(hidden))

    def logits(self, final: Tensor) -> Tensor:
        logits, shape = functional.linear(final, self.output), self.shape
        if shape.part is not None:
            logits = columns_of_ranks(logits, shape.part.ranks)
        if shape.logit_scale != 1.0:
            logits = logits * shape.logit_scale
        return logits if shape.logit_cap is None else (logits / shape.logit_cap).tanh() * shape.logit_cap

    def final(self, hidden: Tensor) -> Tensor:
        final: Tensor = self.norm(hidden)
        return final

    def compile_halves(self, cache: CompileCache | None) -> int:
        self.body.summed = None if cache is None else SummedLayers.of(self.body.layers)
        return sum(functions.compile(cache) for functions in self.body.functions.values())

    def module(self) -> nn.Module:
        return self
