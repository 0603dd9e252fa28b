"""Logit processors of the rows of a batch: masks, bias, penalties, in this order, before temperature and filters.

Parameters go to the device when the members of a batch change. What rows have been written so far is read there, from
the tokens that the KV cache's slots hold: the latest one is known on the device alone while a pass is ahead. A prompt's
pass writes the tokens of its sequence, a step the one that it reads, so a preemption and a prefix hit need nothing.
"""

from collections.abc import Callable
from collections.abc import Sequence as List
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.kernels.sampling.logit_edits import Penalties, Written, add_, keep_only_, mask_where_, penalise_
from graphpod_runtime.wire.logit_processing import LogitProcessing


class History(NamedTuple):
    """What rows of a pass have been written: the tokens of KV slots [pages, page_size], int32, and the pages of each
    row's sequence [rows, pages]. `longest`: tokens of the longest one that is read."""

    slot_tokens: Tensor
    tables: Tensor
    longest: int

    @classmethod
    def of_step(cls, slot_tokens: Tensor, inputs: Inputs, ends: List[int], reading: List[int]) -> "History":
        """Of the sequences of a decode step, with `ends` tokens each; writes the one that the step reads."""
        slot_tokens.view(-1).index_copy_(0, inputs.slots, inputs.tokens.int())
        return cls(slot_tokens, inputs.tables, max(ends[row] for row in reading))

    @classmethod
    def of_prompts(cls, slot_tokens: Tensor, sequences: List[Sequence], reading: List[int]) -> "History":
        """Of sequences whose last chunk runs; writes all tokens of those that are read."""
        size, read = slot_tokens.shape[1], [sequences[row] for row in reading]
        tables = numpy.full((len(sequences), max(len(one.pages) for one in read)), SCRATCH_PAGE, dtype=numpy.int64)
        for row, one in zip(reading, read, strict=True):
            tables[row, : len(one.pages)] = one.pages
        slots = numpy.concatenate(
            [
                (tables[row, :, None] * size + numpy.arange(size)).reshape(-1)[: len(one.tokens)]
                for row, one in zip(reading, read, strict=True)
            ]
        )
        tokens = numpy.concatenate([numpy.asarray(one.tokens, dtype=numpy.int32) for one in read])
        device = slot_tokens.device
        written, at, pages = (torch.from_numpy(one).to(device, non_blocking=True) for one in (tokens, slots, tables))
        slot_tokens.view(-1).index_copy_(0, at, written)
        return cls(slot_tokens, pages, max(len(one.tokens) for one in read))

    def of(self, rows: Tensor) -> "History":
        """That of `rows` [n], as far as it is read."""
        pages = -(-self.longest // self.slot_tokens.shape[1])
        return self._replace(tables=self.tables[:, :pages][rows])

    def ids(self) -> Tensor:
        """int64 [rows, tokens], anything behind a row's own tokens."""
        return self.slot_tokens[self.tables].flatten(1).long()


@dataclass(frozen=True, slots=True)
class Words:
    """Bad words: the last token of each, its row, and the tokens before it [words, most], `counts` of them."""

    rows: Tensor
    last: Tensor
    before: Tensor
    counts: Tensor


@dataclass(frozen=True, slots=True)
class Processors:
    """Those of some rows of a batch. Entries are pairs of row and token; rows count among these rows."""

    prompts: Tensor
    """Prompt tokens of each row."""
    penalised: Tensor
    """1 for a row that has a penalty, else 0."""
    allowed: tuple[Tensor, Tensor, Tensor] | None
    """Rows that have a list, then owner (its place among them) and token of each entry."""
    words: Words | None
    ends: tuple[Tensor, Tensor, Tensor] | None
    """Row, token, and the length of a sequence up to which it is masked."""
    bias: tuple[Tensor, Tensor, Tensor] | None
    """Row, token, amount."""
    penalties: Penalties | None

    @classmethod
    def of(cls, sequences: tuple[Sequence, ...], eos_ids: List[int], device: torch.device) -> "Processors":
        """Those of `sequences`, each of which has some. The host does not wait for the device."""
        asked = [sequence.sampling.processing for sequence in sequences]
        eos = tuple(eos_ids)

        def sent(numbers: object, dtype: type = numpy.int64) -> Tensor:
            return torch.from_numpy(numpy.asarray(numbers, dtype=dtype)).to(device, non_blocking=True)

        def listed(lists: list[list[int]]) -> tuple[Tensor, Tensor]:
            """The list and the number of each entry."""
            owners = numpy.repeat(numpy.arange(len(lists)), [len(one) for one in lists])
            return sent(owners), sent([entry for one in lists for entry in one])

        allowing = [row for row, one in enumerate(asked) if one.allowed is not None]
        ends = [
            list(dict.fromkeys((*eos, *sequence.stop_ids))) if one.min_tokens else []
            for sequence, one in zip(sequences, asked, strict=True)
        ]
        upto = [sequence.prompt_len + one.min_tokens for sequence, one in zip(sequences, asked, strict=True)]
        biases = [one.bias for one in asked]
        return cls(
            prompts=sent([sequence.prompt_len for sequence in sequences]),
            penalised=sent([one.repetition != 1 or one.reads_answer for one in asked]),
            allowed=(sent(allowing), *listed([list(dict.fromkeys(asked[row].allowed or ())) for row in allowing]))
            if allowing
            else None,
            words=_words(asked, sent),
            ends=(*listed(ends), sent(numpy.repeat(upto, [len(one) for one in ends]))) if any(ends) else None,
            bias=(
                *listed([list(bias) for bias in biases]),
                sent([amount for bias in biases for amount in bias.values()], numpy.float32),
            )
            if any(biases)
            else None,
            penalties=_penalties(asked, sent),
        )

    def apply_(self, work: Tensor, positions: Tensor, history: History | None) -> None:
        """Changes work [rows, vocab], float32; row i was computed from the token at positions[i] of its sequence.
        `history` is of these rows, None where nothing reads tokens."""
        lengths = positions + 1
        if self.allowed is not None:
            keep_only_(work, *self.allowed)
        if self.words is not None:
            mask_where_(work, self.words.rows, self.words.last, self._completes(lengths, history))
        if self.ends is not None:
            rows, tokens, upto = self.ends
            mask_where_(work, rows, tokens, lengths[rows] < upto)
        if self.bias is not None:
            add_(work, *self.bias)
        if self.penalties is not None:
            assert history is not None
            # Of rows that have no penalty nothing may have been written.
            penalise_(work, Written(history.ids(), lengths * self.penalised, self.prompts), self.penalties)

    def _completes(self, lengths: Tensor, history: History | None) -> Tensor:
        """Of each bad word, whether its row ends with all but its last token; bool [words]."""
        words = self.words
        assert words is not None
        if history is None:
            return torch.ones_like(words.rows, dtype=torch.bool)
        size = history.slot_tokens.shape[1]
        columns = torch.arange(words.before.shape[1], device=lengths.device)[None]
        needed = columns < words.counts[:, None]
        at = lengths[words.rows, None] - words.counts[:, None] + columns
        answered = at >= self.prompts[words.rows, None]
        at = at.clamp(min=0).where(needed, 0)
        pages = history.tables[words.rows].gather(1, at // size)
        ids = history.slot_tokens[pages, at % size]
        return ((ids == words.before) & answered | ~needed).all(-1)


Sent = Callable[..., Tensor]
"""Numbers on the way to the device, int64 or the type that is named."""


def _words(asked: list[LogitProcessing], sent: Sent) -> Words | None:
    words = [(row, word) for row, one in enumerate(asked) for word in one.bad_words]
    if not words:
        return None
    before = numpy.zeros((len(words), max(1, max(len(word) for _, word in words) - 1)), dtype=numpy.int64)
    for line, (_, word) in zip(before, words, strict=True):
        line[: len(word) - 1] = word[:-1]
    return Words(
        rows=sent([row for row, _ in words]),
        last=sent([word[-1] for _, word in words]),
        before=sent(before),
        counts=sent([len(word) - 1 for _, word in words]),
    )


def _penalties(asked: list[LogitProcessing], sent: Sent) -> Penalties | None:
    repeats, counts = any(one.repetition != 1 for one in asked), any(one.reads_answer for one in asked)
    if not (repeats or counts):
        return None
    columns = zip(*((one.repetition, one.frequency, one.presence) for one in asked), strict=True)
    return Penalties(*(sent(column, numpy.float32) for column in columns), repeats=repeats, counts=counts)
