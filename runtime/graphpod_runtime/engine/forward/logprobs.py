"""Log-probabilities of tokens, from logits or from the hidden states that logits are made of."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from graphpod_runtime.models.model import Model
from graphpod_runtime.wire.messages import Logprob

LOGIT_BYTES = 64 << 20
"""Of the single-precision logits of prompt rows that exist at one time: all of 4096 rows over a vocabulary of 150 000
would be 2.5 GB, which start would have to keep free of KV cache."""


def of_logits(logits: Tensor, tokens: Sequence[int], top: int) -> list[Logprob]:
    """Of `tokens`, one for each row of logits [rows, vocab], with the `top` likeliest tokens of each row."""
    scores = logits.float()
    total = scores.logsumexp(-1, keepdim=True)
    chosen = scores.gather(1, torch.tensor(tokens, device=logits.device)[:, None]) - total
    best = scores.topk(min(top, logits.shape[1]), dim=-1)
    likeliest = (best.values - total).tolist()
    return [
        Logprob(token, logprob, tuple(zip(ids, values, strict=True)))
        for token, (logprob,), ids, values in zip(
            tokens, chosen.tolist(), best.indices.tolist(), likeliest, strict=True
        )
    ]


def of_hidden(model: Model, hidden: Tensor, tokens: Sequence[int], top: int) -> list[Logprob]:
    """Of `tokens`, each after its row of hidden [rows, hidden], the body's result. At most LOGIT_BYTES of logits exist
    at one time."""
    return [
        logprob
        for first, end in _slices(len(tokens), model.shape.vocab)
        for logprob in of_logits(model.head(hidden[first:end]), tokens[first:end], top)
    ]


def _slices(rows: int, vocab: int) -> Iterator[tuple[int, int]]:
    size = rows_at_once(vocab)
    return ((first, min(rows, first + size)) for first in range(0, rows, size))


def rows_at_once(vocab: int) -> int:
    """Prompt rows whose logits exist at one time."""
    return max(1, LOGIT_BYTES // (4 * vocab))
