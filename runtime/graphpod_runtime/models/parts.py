"""What a rank has of a model: which part of each tensor, and of the vocabulary."""

from typing import NamedTuple

import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.base.shapes import ModelShape, Part
from graphpod_runtime.models.tensor_destination import WHOLE, Cut
from graphpod_runtime.ranks.collectives import sum_of_ranks


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


def vocabulary_rows(shape: ModelShape) -> int:
    """Tokens of which this rank has embedding and logits."""
    return shape.vocab if shape.part is None else shape.vocab // shape.part.ranks


def embedded(tokens: Tensor, embedding: Tensor, part: Part) -> Tensor:
    """The rows of `tokens` in a table of which this rank has `embedding`."""
    rows = embedding.shape[0]
    own = tokens - part.rank * rows
    others = ((own < 0) | (own >= rows))[:, None]
    return sum_of_ranks(functional.embedding(own.clamp(0, rows - 1), embedding).masked_fill(others, 0.0))
