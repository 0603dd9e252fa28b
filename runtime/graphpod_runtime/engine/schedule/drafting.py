"""Which sequences of a decode pass have drafts, and how far a sequence may have come while a pass over drafts flies.

A pass over a sequence's latest token and n drafts gives it 1 to n + 1 tokens. How many is known when the pass lands.
Until then the host takes pages for the most, and lets a sequence run on while the least leaves it room. Drafts never
take a page that another sequence needs: where pages are short, there are fewer. Nor does a sequence have drafts whose
text the draft model has not read.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from collections.abc import Sequence as List
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

from graphpod_policy import SpeculativeMethod
from graphpod_runtime.engine.schedule.batch import DecodeBatch
from graphpod_runtime.engine.schedule.draft_reading import read_tokens, shared_out
from graphpod_runtime.engine.schedule.kv_space import KvSpace
from graphpod_runtime.engine.schedule.sequence import Flight, Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.wire.messages import Logprob

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class DraftBatch(DecodeBatch):
    """A pass over drafts: `widths` rows of each sequence, its last token first, of which none beyond `rooms` tokens
    counts. `ends` are the most tokens that a sequence can have. A draft model reads `reads` tokens of each before it.
    """

    widths: tuple[int, ...] = ()
    rooms: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    most: int = sys.maxsize
    """Tokens that it gives a sequence at most, and no more than it has rows of it: branches of a tree are shorter."""

    def by_row(self, entries: List[Entry]) -> tuple[Entry, ...]:
        """What is said of each sequence, once for each of its rows."""
        return tuple(entry for entry, width in zip(entries, self.widths, strict=True) for _ in range(width))


@dataclass(frozen=True, slots=True)
class DraftsYielded(Yielded):
    """What a DraftBatch gave: `more` tokens of each sequence behind its first one, which drafts have brought."""

    more: tuple[tuple[int, ...], ...] = ()
    more_answers: tuple[tuple[Logprob | None, ...], ...] = ()
    """Of `more`."""
    drafted: tuple[int | None, ...] = ()
    """Drafts of each sequence that were verified; None: its method found nothing to draft."""

    def behind(self, index: int) -> Iterator[tuple[int, Logprob | None]]:
        """The tokens that drafts brought to a sequence, and what was asked of each."""
        more = self.more[index]
        return zip(more, self.more_answers[index] if self.more_answers else (None,) * len(more), strict=True)


class PlainReason(StrEnum):
    """Why a sequence decoded without drafts in a pass."""

    Batch = "Batch"
    """More sequences decode than drafts pay for."""
    Behind = "Behind"
    """The draft model has not read all of its text."""
    Grammar = "Grammar"
    """Its mask needs the token before on the host."""
    Penalties = "Penalties"
    """They read the text of each row, and in a tree it does not lie in a row."""
    NothingFound = "NothingFound"
    """The method had no draft for it."""
    Room = "Room"
    """It has one token left, or pages are short."""


class Speculation(NamedTuple):
    """`width` rows of a sequence, the latest token among them, in passes of at most `max_batch` sequences."""

    method: SpeculativeMethod
    width: int
    max_batch: int
    deepest: int | None = None
    """Drafts that follow each other at most, where they are trees; None: they are chains."""
    slots: int = 0
    """KV slots from the latest token on that what drafts a tree writes, if those are more than `width`."""


@dataclass(slots=True)
class Drafting:
    """Of one scheduler."""

    speculation: Speculation
    page_size: int
    max_model_len: int
    drafted: Collection[int] | None = None
    """Pages that a draft model has read; None: the method has no such model."""
    budget: int = 0
    """Tokens that it reads in front of a pass."""
    plain: Counter[PlainReason] = field(default_factory=Counter)
    """Rows of decode passes without drafts, by reason."""

    def batch(self, sequences: tuple[Sequence, ...], kv: KvSpace, spare: int) -> DraftBatch:
        """A pass over `sequences`, which have pages for their latest tokens at least. Those for drafts are taken from
        `kv` as long as more than `spare` are left."""
        reasons = [self._why_plain(one, len(sequences)) for one in sequences]
        lacking = [0 if why else self._lacks(one) for one, why in zip(sequences, reasons, strict=True)]
        reads = shared_out(lacking, self.budget)
        for index, (lack, read) in enumerate(zip(lacking, reads, strict=True)):
            if read < lack:
                reasons[index] = PlainReason.Behind
        self.plain.update(reason for reason in reasons if reason is not None)
        widths = tuple(1 if reason else self.speculation.width for reason in reasons)
        for one, width in zip(sequences, widths, strict=True):
            slots = max(width, self.speculation.slots) if width > 1 else 1
            last = min(one.length + slots - 1, self._limit(one))
            while last > len(one.pages) * self.page_size and kv.available > spare:
                kv.grow(one)
        rooms = tuple(min(self._limit(one), len(one.pages) * self.page_size) for one in sequences)
        most = sys.maxsize if self.speculation.deepest is None else self.speculation.deepest + 1
        ends = tuple(one.length for one in sequences)
        return DraftBatch(sequences, ends, widths, rooms, reads, most)

    def landed(self, batch: DraftBatch, yielded: DraftsYielded) -> list[int]:
        """As the function `landed`; counts what had no drafts."""
        ends = landed(batch, yielded)
        for width, drafts in zip(batch.widths, yielded.drafted, strict=True):
            if width > 1 and not drafts:
                self.plain[PlainReason.NothingFound if drafts is None else PlainReason.Room] += 1
        return ends

    def take_back(self, sequences: List[Sequence], kv: KvSpace) -> bool:
        """Takes pages back that only drafts would use, while nothing is in flight; whether there were any."""
        gave = [kv.take_back(one, one.length) for one in sequences]
        return any(gave)

    def _why_plain(self, sequence: Sequence, sequences: int) -> PlainReason | None:
        if sequences > self.speculation.max_batch:
            return PlainReason.Batch
        if self.speculation.deepest is not None and sequence.sampling.processing.reads_tokens:
            return PlainReason.Penalties
        return PlainReason.Grammar if sequence.grammar is not None else None

    def _lacks(self, sequence: Sequence) -> int:
        """Tokens in front of the latest that the draft model has not read."""
        if self.drafted is None or not sequence.drafted_plainly:
            return 0
        end = sequence.length - 1
        return end - read_tokens(sequence, end, self.drafted, self.page_size)

    def _limit(self, sequence: Sequence) -> int:
        """Tokens that are computed at most: behind the last one nothing follows."""
        return min(sequence.prompt_len + sequence.max_tokens, self.max_model_len) - 1


def landed(batch: DraftBatch, yielded: DraftsYielded) -> list[int]:
    """`batch` has landed: the tokens of each sequence that have keys and values now. What is in flight behind it goes
    on from there."""
    ends = []
    for sequence, more in zip(batch.sequences, yielded.more, strict=True):
        sequence.flights.pop(0)
        end = sequence.launched = sequence.computed + 1 + len(more)
        for flight in sequence.flights:
            sequence.launched = flight.most(sequence.launched)
        ends.append(end)
    return ends


def launched(batch: DraftBatch) -> None:
    """`batch` is in flight."""
    for sequence, width, room in zip(batch.sequences, batch.widths, batch.rooms, strict=True):
        flight = Flight(min(width, batch.most), room)
        sequence.launched = flight.most(sequence.launched)
        sequence.flights.append(flight)
