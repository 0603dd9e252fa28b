"""Log-probabilities of tokens, from logits or from the hidden states that logits are made of."""

from collections.abc import Iterator
from collections.abc import Sequence as List
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.schedule.batch import PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.models.model import Model
from graphpod_runtime.wire.messages import Logprob

LOGIT_BYTES = 64 << 20
"""Of the single-precision logits of prompt rows that exist at one time: all of 4096 rows over a vocabulary of 150 000
would be 2.5 GB, which start would have to keep free of KV cache."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities of rows, as tensors: of `tokens` [rows], whose `ranks` [rows] begin with 1, and of the
    likeliest `ids` [rows, top]."""

    tokens: Tensor
    chosen: Tensor
    ranks: Tensor
    ids: Tensor
    likeliest: Tensor
    owners: tuple[int, ...] = ()
    """The entry of the batch that asked for each row,"""
    tops: tuple[int, ...] = ()
    """and for how many of the likeliest."""

    def copied(self) -> "Scores":
        """On its way to the host."""
        tensors = self.tokens, self.chosen, self.ranks, self.ids, self.likeliest
        parts = (part.to(HOST, non_blocking=True, copy=True) for part in tensors)
        return Scores(*parts, owners=self.owners, tops=self.tops)

    def to_list(self) -> list[Logprob]:
        """Row by row. On a device the host would wait for it."""
        parts = (part.tolist() for part in (self.tokens, self.chosen, self.ranks, self.ids, self.likeliest))
        return [
            Logprob(token, logprob, tuple(zip(ids, values, strict=True)), rank)
            for token, logprob, rank, ids, values in zip(*parts, strict=True)
        ]

    def owned(self) -> list[tuple[int, Logprob]]:
        """Entries and their log-probabilities, from the host; another of the batch may have asked for more."""
        return [
            (owner, one if len(one.top) == top else replace(one, top=one.top[:top]))
            for owner, top, one in zip(self.owners, self.tops, self.to_list(), strict=True)
        ]


def of_answers(
    sequences: tuple[Sequence, ...], rows: tuple[int, ...], entries: List[int], logits: Tensor, tokens: Tensor
) -> Scores:
    """Of `tokens` [sequences], drawn from logits [sequences, vocab], those `rows` that want it, one or more. `entries`
    of a batch are the sequences."""
    if len(rows) < len(sequences):
        wanted = torch.tensor(rows).to(logits.device, non_blocking=True)
        logits, tokens = logits[wanted], tokens[wanted]
    tops = tuple(sequences[row].wants.answer or 0 for row in rows)
    scores = of_logits(logits, tokens, max(tops), [sequences[row].wants.answer_ids for row in rows])
    return replace(scores, owners=tuple(entries[row] for row in rows), tops=tops)


def of_prompts(model: Model, batch: PrefillBatch, starts: list[int], hidden: Tensor) -> Scores:
    """Of the prompt tokens that each chunk is to score, of which there are some; its rows of hidden [tokens, hidden]
    begin at `starts`."""
    rows, following, owners, tops = list[int](), list[int](), list[int](), list[int]()
    for index, chunk in enumerate(batch.chunks):
        for position in chunk.scored:
            rows.append(starts[index] + position - 1 - chunk.start)
            following.append(chunk.sequence.tokens[position])
            owners.append(index)
            tops.append(chunk.sequence.wants.prompt or 0)
    scored, tokens = (torch.tensor(part).to(hidden.device, non_blocking=True) for part in (rows, following))
    return replace(of_hidden(model, hidden[scored], tokens, max(tops)), owners=tuple(owners), tops=tuple(tops))


def of_logits(logits: Tensor, tokens: Tensor, top: int, named: List[tuple[int, ...]] = ()) -> Scores:
    """Of `tokens` [rows], one for each row of logits [rows, vocab], with the `top` likeliest tokens of each row, or
    those that are `named` for it, at most `top`. The host does not wait for the device. A token below 0 has no
    log-probability, and some number stands in its place."""
    scores = logits.float()
    total = scores.logsumexp(-1, keepdim=True)
    own = scores.gather(1, tokens.clamp(min=0)[:, None])
    ranks = 1 + (scores > own).sum(-1)
    best = scores.topk(min(top, logits.shape[1]), dim=-1)
    ids, values = best.indices, best.values
    if any(named):
        rows = [row for row, one in enumerate(named) if one]
        padded = [[*named[row], *[0] * (top - len(named[row]))] for row in rows]
        there, wanted = (torch.tensor(part).to(logits.device, non_blocking=True) for part in (rows, padded))
        if top > ids.shape[1]:  # more than the vocabulary has
            ids = torch.nn.functional.pad(ids, (0, top - ids.shape[1]))
        ids = ids.index_copy(0, there, wanted)
        values = scores.gather(1, ids)
    return Scores(tokens, (own - total)[:, 0], ranks, ids, values - total)


def of_hidden(model: Model, hidden: Tensor, tokens: Tensor, top: int) -> Scores:
    """Of `tokens` [rows], each after its row of hidden [rows, hidden], the body's result. At most LOGIT_BYTES of logits
    exist at one time."""
    parts = [
        of_logits(model.head(hidden[first:end]), tokens[first:end], top)
        for first, end in _slices(tokens.shape[0], model.shape.vocab)
    ]
    columns = zip(*((one.tokens, one.chosen, one.ranks, one.ids, one.likeliest) for one in parts), strict=True)
    return Scores(*(torch.cat(column) for column in columns))


def _slices(rows: int, vocab: int) -> Iterator[tuple[int, int]]:
    size = rows_at_once(vocab)
    return ((first, min(rows, first + size)) for first in range(0, rows, size))


def rows_at_once(vocab: int) -> int:
    """Prompt rows whose logits exist at one time."""
    return max(1, LOGIT_BYTES // (4 * vocab))
