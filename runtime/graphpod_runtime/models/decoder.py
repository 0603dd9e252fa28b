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
from graphpod_runtime.models.attention.projections import projections
from graphpod_runtime.models.layer_functions import Forms, LayerFunctions
from graphpod_runtime.models.mlp.dense import DenseMlp
from graphpod_runtime.models.mlp.experts import Experts
from graphpod_runtime.models.norm import NormTensors, RowNorm
from graphpod_runtime.models.parts import embedded, vocabulary_rows
from graphpod_runtime.models.rope.rope_tables import rope_tables


def _norm(shape: ModelShape, dtype: torch.dtype, *width: int) -> RowNorm:
    """Over `width`; a row's without."""
    return RowNorm(shape.norm, width or (shape.hidden,), shape.norm_eps, dtype)


class DecoderLayer(nn.Module):
    """One layer. q, k and v are one matrix, gate and up are another: two reads of the input instead of five."""

    functions: LayerFunctions
    """Set by the body, which shares them among layers."""

    def __init__(self, shape: ModelShape, index: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape, self.index = shape, index
        bare = not shape.norm_inputs or (index == 0 and shape.bare_input)
        self.norm_before_attention = None if bare else _norm(shape, dtype)
        self.qkv, self.norm_q, self.norm_k, self.out = projections(shape, index, dtype)
        self.norm_attended = _norm(shape, dtype) if shape.norm_results else None
        self.norm_before_mlp = self.norm_before_attention
        if not shape.parallel:
            self.norm_before_mlp = _norm(shape, dtype) if shape.norm_inputs else None
        mixture = shape.experts(index)
        self.mlp = DenseMlp(shape, index, dtype) if mixture is None else Experts(mixture, shape.hidden, dtype)
        self.norm_result = _norm(shape, dtype) if shape.norm_results else None

    @property
    def forms(self) -> Forms:
        attention = self.qkv.weight.form, self.out.weight.form
        if isinstance(self.mlp, Experts):
            # Not which layers have it: they share what is compiled.
            return Forms(*attention, mixture=self.mlp.mixture._replace(layers=()))
        return Forms(*attention, self.mlp.gate_up.weight.form, self.mlp.down.weight.form)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, attend: Attend) -> Tensor:
        """x [tokens, hidden], tables [tokens, 1, head_dim] -> [tokens, hidden]"""
        return self.behind(self.attended(x, cosines, sines, attend), x)

    def behind(self, attended: Tensor, x: Tensor) -> Tensor:
        """What follows attention over x: [tokens, heads · d] and x -> [tokens, hidden]; x is given away."""
        result: Tensor = self.functions.after(
            attended,
            x,
            self.out.weight.tensors(),
            self.out.bias,
            _tensors(self.norm_attended),
            _tensors(self.norm_before_mlp),
            *self.mlp.arguments(),
            _tensors(self.norm_result),
        )
        return result

    def attended(self, x: Tensor, cosines: Tensor, sines: Tensor, attend: Attend) -> Tensor:
        """Attention over x: [tokens, heads · d]."""
        # A method of its own: q, k and v keep their memory, a fifth of a graph pool, until it returns.
        q, k, v = self.functions.before(
            x,
            cosines,
            sines,
            _tensors(self.norm_before_attention),
            self.qkv.weight.tensors(),
            self.qkv.bias,
            None if self.norm_q is None else self.norm_q.weight,
            None if self.norm_k is None else self.norm_k.weight,
        )
        return attend(self.index, q, k, v)


def _tensors(norm: RowNorm | None) -> NormTensors | None:
    return None if norm is None else norm.tensors()


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

    def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor | tuple[Tensor, Tensor]:
        """What the layers give; where a head reads layers, next to it their states [tokens, layers · hidden]."""
        everywhere = within = self.cosines[positions], self.sines[positions]
        if self.shape.local_rope_theta is not None:
            within = self.local_cosines[positions], self.local_sines[positions]
        if self.shape.unrotated:
            nowhere = torch.ones_like(everywhere[0]), torch.zeros_like(everywhere[1])
        states: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            if index in self.read_layers:
                # A compiled layer adds to its input.
                states.append(hidden.clone())
            cosines, sines = everywhere if self.shape.window(index) is None else within
            if index in self.shape.unrotated:
                cosines, sines = nowhere
            hidden = layer(hidden, cosines, sines, attend)
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
        self.norm = _norm(shape, dtype)
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
        return sum(functions.compile(cache) for functions in self.body.functions.values())

    def module(self) -> nn.Module:
        return self
