"""A stage of a pipeline as a model: what it does not have comes from other stages."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.base.shapes import HOST, KvScale, ModelShape
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.distributed.pipeline import Pipeline, Position
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.model import Model


class StageModel:
    """A Model. Its `embed` takes states of the stage before, unless it is the first. Only the last one has a head; what
    the head gives, other stages have as zeros, but for the first rank while `exchanges`."""

    def __init__(self, own: Model, pipeline: Pipeline) -> None:
        """`own` has the layers of this stage."""
        self.own, self.pipeline = own, pipeline
        self.kv_scales: tuple[KvScale, ...] = own.kv_scales
        self.unscaled_layers: tuple[int, ...] = own.unscaled_layers
        self.sinks: tuple[Tensor | None, ...] = own.sinks
        self.exchanges = False
        """Whether the first rank takes what the head gives now, as for log-probabilities of prompts."""

    @property
    def shape(self) -> ModelShape:
        return self.own.shape

    @property
    def body(self) -> nn.Module:
        return self.own.body

    def embed(self, tokens: Tensor) -> Tensor:
        if self.pipeline.position.begins:
            return self.own.embed(tokens)
        sizes, dtype = self.own.embedded(self._dtype)
        states = torch.zeros((tokens.shape[0], *sizes), dtype=dtype, device=tokens.device)
        self.pipeline.take_states(states)
        return states

    def embedded(self, dtype: torch.dtype) -> tuple[tuple[int, ...], torch.dtype]:
        return self.own.embedded(dtype)

    def head(self, hidden: Tensor) -> Tensor:
        return self._given(self.own.head(hidden)) if self._ends else self._taken(hidden, self.shape.vocab)

    def final(self, hidden: Tensor) -> Tensor:
        return self._given(self.own.final(hidden)) if self._ends else self._taken(hidden, self.shape.hidden)

    def logits(self, final: Tensor) -> Tensor:
        return self._given(self.own.logits(final)) if self._ends else self._taken(final, self.shape.vocab)

    def compile_halves(self, cache: CompileCache | None) -> int:
        return self.own.compile_halves(cache)

    def module(self) -> nn.Module:
        return self.own.module()

    def _given(self, result: Tensor) -> Tensor:
        if self.exchanges:
            self.pipeline.answer(result)
        return result

    def _taken(self, rows: Tensor, width: int) -> Tensor:
        if self.exchanges and self.pipeline.position.rank == 0:
            result = rows.new_zeros(rows.shape[0], width)
            self.pipeline.take_answer(result)
            return result
        return rows.new_zeros(1, 1).expand(rows.shape[0], width)

    @property
    def _ends(self) -> bool:
        return self.pipeline.position.ends

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.own.module().parameters()).dtype


def loader_of(place: Position, pipeline: Pipeline | None, expert_groups: int = 1) -> Callable[..., Model]:
    """What loads the part of a model that the rank at `place` has. `expert_groups`: as `ModelShape.split` has them."""
    if pipeline is None:
        return partial(load_model, rank=place.part, ranks=place.tensor, expert_groups=expert_groups)
    return partial(load_stage, pipeline, expert_groups=expert_groups)


def load_stage(
    pipeline: Pipeline,
    folder: Path,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device = HOST,
    read: OnProgress = ignore_progress,
    quantize: bool = False,
    expert_groups: int = 1,
) -> StageModel:
    """As `load_model`, the part of the model in `folder` that the rank of `pipeline` has."""
    here = pipeline.position
    own = load_model(
        folder, dtype, max_model_len, device, read, quantize,
        rank=here.part, ranks=here.tensor, stage=here.stage, stages=here.stages,
        expert_groups=expert_groups,
    )  # fmt: skip
    return StageModel(own, pipeline)
