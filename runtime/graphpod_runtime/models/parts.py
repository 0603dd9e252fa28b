"""What a rank has of a model: which part of each tensor, and of the vocabulary."""

import re
from typing import NamedTuple

import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.base.shapes import ModelShape, Part
from graphpod_runtime.distributed.collectives import sum_of_ranks
from graphpod_runtime.models.tensor_destination import WHOLE, Cut

LAYER = re.compile(r"model\.layers\.(\d+)\.")
EXPERT = re.compile(r"model\.layers\.\d+\.mlp\.experts\.(\d+)\.")


class Cuts(NamedTuple):
    """Of the tensors of a checkpoint: those whose outputs are divided, those whose inputs are, and those of key-value
    heads, of which ranks may share one."""

    rows: Cut = WHOLE
    columns: Cut = WHOLE
    kv_rows: Cut = WHOLE


def cuts_of(shape: ModelShape) -> Cuts:
    """Those of the part that `shape` is."""
    if (part := shape.part) is None:
        return Cuts()
    parts = min(part.ranks, part.whole.kv_heads)
    return Cuts(
        Cut(0, part.rank, part.ranks), Cut(1, part.rank, part.ranks), Cut(0, part.rank * parts // part.ranks, parts)
    )


def expert_cuts(shape: ModelShape) -> Cuts:
    """Those of the experts that the part `shape` has: its ranks may have all columns of some, or some of all."""
    if (part := shape.part) is None or shape.mixture is None or part.whole.mixture is None:
        return Cuts()
    slices = part.whole.mixture.width // shape.mixture.width
    return Cuts(Cut(0, part.rank % slices, slices), Cut(1, part.rank % slices, slices))


def vocabulary_rows(shape: ModelShape) -> tuple[int, int]:
    """Tokens of which this rank has the embedding, and of which it has logits."""
    rows = shape.vocab if shape.part is None else shape.vocab // shape.part.ranks
    if (stage := shape.stage) is None:
        return rows, rows
    # Tied logits are those of the last stage's own copy of the embedding.
    return rows if stage.begins or (stage.ends and shape.tied) else 0, rows if stage.ends else 0


def elsewhere(name: str, shape: ModelShape) -> bool:
    """Whether the tensor `name` is of the model, and other stages of its pipeline have it."""
    if (stage := shape.stage) is None:
        return False
    if (layer := LAYER.match(name)) is not None:
        number = int(layer[1])
        return number < stage.whole.layers and not 0 <= number - stage.first < shape.layers
    if name.startswith("model.embed_tokens."):
        return vocabulary_rows(shape)[0] == 0
    return name.startswith(("model.norm.", "lm_head.")) and not stage.ends


def of_other_experts(name: str, shape: ModelShape) -> bool:
    """Whether the tensor `name` is of an expert of the model that other ranks have."""
    if (mixture := shape.mixture) is None or (expert := EXPERT.match(name)) is None:
        return False
    return int(expert[1]) < mixture.experts and int(expert[1]) not in mixture.held


def embedded(tokens: Tensor, embedding: Tensor, part: Part) -> Tensor:
    """The rows of `tokens` in a table of which this rank has `embedding`."""
    rows = embedding.shape[0]
    own = tokens - part.rank * rows
    others = ((own < 0) | (own >= rows))[:, None]
    return sum_of_ranks(functional.embedding(own.clamp(0, rows - 1), embedding).masked_fill(others, 0.0))


def rms_norm_of_ranks(x: Tensor, weight: Tensor, eps: float, ranks: int) -> Tensor:
    """As `rms_norm` over all heads of the model, of which this rank has x [tokens, heads, width] and `weight`. Where
    ranks share heads, each head is in the mean as often as every other."""
    wide = x.float()
    square = sum_of_ranks(wide.square().mean((1, 2), keepdim=True)) / ranks
    return (wide * (square + eps).rsqrt() * weight).to(x.dtype)
