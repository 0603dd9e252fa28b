"""What the device keeps of every sequence that decodes: its latest token, its length, its pages.

A sequence that decodes has a seat. A step reads its rows from the seats and writes the tokens that it chose there, so
that the next step can be launched before the host knows them. The host sends what it alone knows: a new sequence, a
page that is crossed. It has a copy of everything but tokens in flight, and so knows what to send; debug mode `seats`
compares the two after each pass.

Seats are a cache of what the host knows: one of a sequence with nothing in flight may be given to another at any time.
"""

from collections.abc import Sequence as List
from typing import NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphpod_policy import Phase
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine.forward.inputs import refuse_short
from graphpod_runtime.engine.schedule.batch import DecodeBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.kernels.rows.seat_rows import seat_rows_for
from graphpod_runtime.kernels.rows.seat_rows_contract import LENGTH, PAGES, TOKEN, StepRows

Numbers = NDArray[numpy.int64]

FLYING = -1
"""In the place of a token of which the host does not know yet what it is."""


class Seated(NamedTuple):
    """The seats of one pass's rows, and the length of each sequence once its token is kept."""

    seats: Numbers
    lengths: Numbers


class Seats:
    """Those of one engine: the rows of a step for each pass in flight, because who has ended keeps its seat until then.

    Calls come in the order of passes: `step` or `seat`, the pass, `keep`; `landed` once the tokens are known.
    """

    def __init__(self, page_size: int, into: StepRows, *, whole_tables: bool, passes: int = 2) -> None:
        """For steps that read their rows `into` static buffers, whose tables say how many pages a sequence can have; at
        most so many `passes` are in flight, the next one among them."""
        self._into = into
        self._whole_tables = whole_tables
        self._device, self._page_size = into.tokens.device, page_size
        count = passes * into.tokens.shape[0]
        self._host = numpy.zeros((count, PAGES + into.tables.shape[1]), dtype=numpy.int64)
        self._host[:, PAGES:] = SCRATCH_PAGE
        self._state = torch.from_numpy(self._host).to(self._device, copy=True)
        self._kernels = seat_rows_for(self._device)
        self._owned = numpy.zeros(count, dtype=numpy.int64)
        """Pages of each seat that the device knows."""
        self._free = list(range(count))
        self._seat_of: dict[Sequence, int] = {}
        self._members: tuple[Sequence, ...] = ()
        self._seats: Numbers = numpy.zeros(0, dtype=numpy.int64)
        self._rows = torch.zeros(0, dtype=torch.int64, device=self._device)
        self._starts = torch.arange(count + 1)
        self._inputs = self._inputs_of(0)
        """Of the latest step: always the same first rows of static buffers."""
        # Kernels are compiled by a first call: one token, of no sequence.
        first = self._rows_of(numpy.zeros(1, dtype=numpy.int64))
        self._kernels.keep(self._state, first, into.tokens[:1])
        self._kernels.read(self._state, first, page_size, into, whole=whole_tables)
        self._state.copy_(torch.from_numpy(self._host))

    def step(self, batch: DecodeBatch) -> Inputs:
        """The inputs of a decode step, in its static buffers, padding included. IndexError for a sequence that owns too
        few pages."""
        self.seat(batch.sequences, batch.ends)
        self._kernels.read(self._state, self._rows, self._page_size, self._into, whole=self._whole_tables)
        if self._inputs.count != len(batch.sequences):
            self._inputs = self._inputs_of(len(batch.sequences))
        return self._inputs

    def seat(self, sequences: tuple[Sequence, ...], ends: List[int], *, new: bool = False) -> None:
        """The next pass gives each of `sequences`, which has the tokens to its end, one more. Sends what the device
        does not know, everything of those that are `new`."""
        if sequences != self._members:
            self._members = sequences
            self._seats = numpy.array([self._seat(one, sequences) for one in sequences], dtype=numpy.int64)
            self._rows = self._rows_of(self._seats)
        lengths, known = numpy.array(ends), self._owned[self._seats]
        owned = numpy.array([len(one.pages) for one in sequences])
        if (short := lengths > owned * self._page_size).any():
            index = int(short.argmax())
            refuse_short(sequences[index], ends[index], self._page_size)
        unknown = (self._host[self._seats, LENGTH] != lengths) | (owned < known) | new
        landed = numpy.array([len(one.tokens) for one in sequences]) == lengths
        changes: list[tuple[int, int, int]] = []
        for index in (unknown | landed | (owned != known)).nonzero()[0].tolist():
            sequence, seat, first = sequences[index], int(self._seats[index]), int(known[index])
            if unknown[index]:
                self._fill(seat, sequence, ends[index])
                continue
            changes += [(seat, PAGES + at, page) for at, page in enumerate(sequence.pages[first:], first)]
            if landed[index] and self._host[seat, TOKEN] != sequence.tokens[-1]:
                changes.append((seat, TOKEN, sequence.tokens[-1]))
        self._owned[self._seats] = owned
        if unknown.any():
            filled = self._seats[unknown]
            rows = torch.from_numpy(self._host[filled]).to(self._device, non_blocking=True)
            self._state.index_copy_(0, self._rows if unknown.all() else self._rows_of(filled), rows)
        if changes:
            made = numpy.array(changes).T
            self._host[made[0], made[1]] = made[2]
            seats, columns, values = torch.from_numpy(made.copy()).to(self._device, non_blocking=True)
            self._state[seats, columns] = values

    def keep(self, tokens: Tensor) -> Seated:
        """`tokens` [rows] of the pass are the latest of its sequences."""
        self._kernels.keep(self._state, self._rows, tokens)
        self._host[self._seats, LENGTH] += 1
        self._host[self._seats, TOKEN] = FLYING
        return Seated(self._seats, self._host[self._seats, LENGTH])

    def landed(self, seated: Seated, tokens: Tensor) -> None:
        """`tokens` [rows], on the host, are what a pass gave; those that another pass has gone on from stay unknown."""
        latest = self._host[seated.seats, LENGTH] == seated.lengths
        self._host[seated.seats[latest], TOKEN] = numpy.maximum(tokens.numpy()[latest], 0)

    def verify(self) -> None:
        """AssertionError where the device and the host know different things. Waits for the device."""
        there = self._state.to(HOST).numpy()
        for sequence, seat in self._seat_of.items():
            host, device = self._host[seat].copy(), there[seat]
            if host[TOKEN] == FLYING:
                host[TOKEN] = device[TOKEN]
            if (host != device).any():
                column = int((host != device).argmax())
                raise AssertionError(
                    f"seat {seat} of request {sequence.id!r}, column {column} (0 token, 1 length, then "
                    f"pages): the device has {device[column]}, the host {host[column]}"
                )

    def _seat(self, sequence: Sequence, members: tuple[Sequence, ...]) -> int:
        """Its seat; a new one has length 0 until it is filled."""
        seat = self._seat_of.get(sequence)
        if seat is None:
            if not self._free:
                self._take_back(members)
            seat = self._free.pop()
            self._seat_of[sequence] = seat
            self._host[seat, LENGTH] = self._owned[seat] = 0
        return seat

    def _take_back(self, members: tuple[Sequence, ...]) -> None:
        """The seats of all that have nothing in flight, but for `members` of the next pass."""
        staying = set(members)
        for holder in list(self._seat_of):
            if holder not in staying and not holder.in_flight:
                self._free.append(self._seat_of.pop(holder))

    def _fill(self, seat: int, sequence: Sequence, end: int) -> None:
        row = self._host[seat]
        # The token at the end of a prompt is not read: the pass that is next gives one more.
        row[TOKEN], row[LENGTH] = sequence.tokens[end - 1], end
        row[PAGES:] = SCRATCH_PAGE
        row[PAGES : PAGES + len(sequence.pages)] = sequence.pages

    def _inputs_of(self, count: int) -> Inputs:
        tokens, positions, slots, lengths, tables = (buffer[:count] for buffer in self._into)
        starts, yields = self._starts[: count + 1], tuple(range(count))
        return Inputs(Phase.Decode, tokens, positions, slots, tables, lengths, starts, yields, in_place=True)

    def _rows_of(self, seats: Numbers) -> Tensor:
        return torch.from_numpy(seats).to(self._device, non_blocking=True)
