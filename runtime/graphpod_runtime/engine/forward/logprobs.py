"""Log-probabilities of tokens, from logits or from the hidden states that logits are made of."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.models.model import Model
from graphpod_runtime.wire.messages import Logprob

LOGIT_BYTES = 64 << 20
"""Of the single-precision logits of prompt rows that exist at one time: all of 4096 rows over a vocabulary of 150 000
would be 2.5 GB, which start would have to keep free of KV cache."""


class Scores(NamedTuple):
    """Log-probabilities of rows, as tensors: of `tokens` [rows], and of the likeliest `ids` [rows, top]."""

    tokens: Tensor
    chosen: Tensor
    ids: Tensor
    likeliest: Tensor

    def to_list(self) -> list[Logprob]:
        """Row by row. On a device the host would wait for it."""
        return [
            Logprob(token, logprob, tuple(zip(ids, values, strict=True)))
            for token, logprob, ids, values in zip(*(part.tolist() for part in self), strict=True)
        ]


def of_logits(logits: Tensor, tokens: Tensor, top: int) -> Scores:
    """Of `tokens` [rows], one for each row of logits [rows, vocab], with the `top` likeliest tokens of each row. The
    host does not wait for the device. A token below 0 has no log-probability, and some number stands in its place."""
    scores = logits.float()
    total = scores.logsumexp(-1, keepdim=True)
    chosen = scores.gather(1, tokens.clamp(min=0)[:, None]) - total
    best = scores.topk(min(top, logits.shape[1]), dim=-1)
    return Scores(tokens, chosen[:, 0], best.indices, best.values - total)


def of_hidden(model: Model, hidden: Tensor, tokens: Tensor, top: int) -> Scores:
    """Of `tokens` [rows], each after its row of hidden [rows, hidden], the body's result. At most LOGIT_BYTES of logits
    exist at one time."""
    parts = [
        of_logits(model.head(hidden[first:end]), tokens[first:end], top)
        for first, end in _slices(tokens.shape[0], model.shape.vocab)
    ]
    return Scores(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _slices(rows: int, vocab: int) -> Iterator[tuple[int, int]]:
    size = rows_at_once(vocab)
    return ((first, min(rows, first + size)) for first in range(0, rows, size))


def rows_at_once(vocab: int) -> int:
    """Prompt rows whose logits exist at one time."""
    return max(1, LOGIT_BYTES // (4 * vocab))
