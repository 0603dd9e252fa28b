"""Seats of an engine with speculative decoding: what the device keeps of every sequence that decodes.

As `seats.py`, with one difference: a step may give a sequence several tokens, and how many is known on the device alone
until the step has landed. So lengths advance there. The host sends new sequences, pages, and how much room they give; a
draft without room is not verified. The host knows of a flying sequence only how far it may have come.
"""

from collections.abc import Callable
from collections.abc import Sequence as List
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine.forward.drafting.draft_model import DraftModel
from graphpod_runtime.engine.forward.drafting.drafting_head import DraftingHead
from graphpod_runtime.engine.forward.drafting.proposer import Proposer
from graphpod_runtime.engine.forward.inputs import refuse_short
from graphpod_runtime.engine.forward.sampling.processors import History
from graphpod_runtime.engine.forward.seats import Seated
from graphpod_runtime.engine.forward.token_runs import Runs
from graphpod_runtime.engine.schedule.drafting import DraftBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, ROOM, TOKEN, Places, advance, read
from graphpod_runtime.kernels.rows.scripted_acceptance import ScriptedAcceptance
from graphpod_runtime.kernels.rows.seat_rows_contract import StepRows


class Step(NamedTuple):
    """What the next `keep` is about."""

    seats: Tensor
    widths: tuple[int, ...]
    places: Places
    tokens: Tensor
    """[rows] that were read."""
    real: Tensor
    proposed: Tensor | None
    drafts: Tensor | None
    decodes: bool


class DraftingSeats:
    """Those of one engine. Calls come in the order of passes, as `Seats` has them."""

    proposer: Proposer
    """Set before the first step."""

    def __init__(self, page_size: int, into: StepRows, rows: int, slot_tokens: Callable[[], Tensor]) -> None:
        """For steps of up to so many `rows`, read `into` static buffers; `slot_tokens` are those of the cache."""
        self._page_size, self._into, self.slot_tokens = page_size, into, slot_tokens
        self.draft_model: DraftModel | None = None
        """One that must hear of every pass."""
        self.head: DraftingHead | None = None
        """One that reads what every pass leaves."""
        self.script: ScriptedAcceptance | None = None
        """A debug switch."""
        self._device = into.tokens.device
        count = 2 * rows
        self.state = torch.zeros(count + 1, PAGES + into.tables.shape[1], dtype=torch.int64, device=self._device)
        """[seats, PAGES + pages], the last one of padding: one token, 0, on the scratch page."""
        self.state[-1, LENGTH] = 1
        self._sent: list[tuple[int, int, int]] = [(0, 0, 0)] * count
        """Of each seat: its pages, how often some were taken back, and its room."""
        self._free = list(range(count))
        self._seat_of: dict[Sequence, int] = {}
        self._planned: tuple[tuple[Sequence, ...], tuple[int, ...]] = ((), ())
        self._places = Places.of((1,), self._device)
        self._seats = torch.zeros(0, dtype=torch.int64, device=self._device)
        self._step: Step

    def step(self, batch: DraftBatch) -> Inputs:
        """The inputs of a step over the latest tokens and drafts, in static buffers. IndexError for a sequence that
        owns too few pages for its latest token, however far it has come."""
        sequences, widths = batch.sequences, batch.widths
        for sequence, end in zip(sequences, batch.ends, strict=True):
            if end > len(sequence.pages) * self._page_size:
                refuse_short(sequence, end, self._page_size)
        self._settle(sequences, batch.rooms)
        self._plan(sequences, widths)
        drafts = found = None
        if self.draft_model is not None:
            self.draft_model.catch_up(batch)
        if max(widths) > 1:
            pages = max(len(one.pages) for one in sequences)
            found = self.proposer.propose(self.state, self._seats, self.slot_tokens(), pages)
            drafts = found.drafts
            if self.draft_model is not None:
                self.draft_model.drafts(batch)
        elif self.draft_model is not None:
            self.draft_model.skipped(sequences)
        elif self.head is not None:
            self.head.skipped(self._seats)
        real = self._read(drafts)
        count = sum(widths)
        tokens, positions, slots, lengths, tables = (buffer[:count] for buffer in self._into)
        proposed = None if found is None else found.any if self.script is None else torch.ones_like(found.any)
        self._step = Step(self._seats, widths, self._places, tokens.clone(), real, proposed, drafts, decodes=True)
        starts, yields = torch.arange(count + 1), tuple(range(count))
        return Inputs(Phase.Decode, tokens, positions, slots, tables, lengths, starts, yields, in_place=True)

    def seat(self, sequences: tuple[Sequence, ...], ends: List[int], *, new: bool = True) -> None:
        """The next pass ends the prompts of `sequences`, which have so many tokens; each gets one more."""
        assert new, "a step seats its own sequences"
        for sequence, end in zip(sequences, ends, strict=True):
            if end > len(sequence.pages) * self._page_size:
                refuse_short(sequence, end, self._page_size)
        self._fill(sequences, ends, [0] * len(sequences))
        # Look-ups read prompts, too.
        History.of_prompts(self.slot_tokens(), sequences, range(len(sequences)))
        widths = (1,) * len(sequences)
        self._plan(sequences, widths)
        nothing = torch.zeros(len(sequences), dtype=torch.int64, device=self._device)
        self._step = Step(self._seats, widths, self._places, nothing, nothing.bool(), None, None, decodes=False)

    def keep(self, tokens: Tensor, states: Tensor | None = None) -> Runs | None:
        """`tokens` [rows] follow the rows of the pass, which left `states` [rows, …] where a head reads some. None
        behind prompts, which have one token each."""
        step = self._step
        taken, nodes = self._advance(step, tokens)
        if self.head is not None:
            assert states is not None, "every pass leaves states where a head reads them"
            places = step.places if nodes is None else step.places.along(nodes)
            self.head.keep(step.seats, places, states, taken[:, -1] + 1)
        return Runs(step.widths, taken, step.proposed, nodes) if step.decodes else None

    def _read(self, drafts: Tensor | None) -> Tensor:
        """The rows of the planned step into its buffers; bool [rows]: which are real."""
        return read(self.state, self._seats, self._places, drafts, self.slot_tokens(), self._into)

    def _advance(self, step: Step, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """What `step` took of the `tokens` that follow its rows, as `advance` gives it, and from which rows of each
        entry: None, its first ones."""
        script = self.script if step.decodes else None
        return advance(self.state, step.seats, step.places, step.tokens, step.real, tokens, script), None

    def landed(self, seated: Seated, tokens: Tensor) -> None:
        """Nothing: the device has counted."""

    def lengths(self, sequences: List[Sequence]) -> list[int]:
        """The tokens of each. Waits for the device."""
        there = self.state[:, LENGTH].tolist()
        return [there[self._seat_of[one]] if one in self._seat_of else len(one.tokens) for one in sequences]

    def verify(self) -> None:
        """AssertionError where the device and the host know different things. Waits for the device."""
        there = self.state.to(HOST).numpy()
        for sequence, seat in self._seat_of.items():
            pages, losses, _ = self._sent[seat]
            known = sequence.pages[:pages] if losses == sequence.page_losses else []
            wrong = there[seat, PAGES : PAGES + len(known)].tolist() != known
            if not sequence.in_flight and sequence.pages:
                wrong |= there[seat, [TOKEN, LENGTH]].tolist() != [sequence.tokens[-1], len(sequence.tokens)]
            if wrong:
                raise AssertionError(
                    f"seat {seat} of request {sequence.id!r}: the device has {there[seat].tolist()} (token, length, "
                    f"room, pages), the host {len(sequence.tokens)} tokens up to {sequence.tokens[-1]} on {known}"
                )

    def _settle(self, sequences: tuple[Sequence, ...], rooms: tuple[int, ...]) -> None:
        """The device knows of each sequence what the host does."""
        missing = [index for index, one in enumerate(sequences) if self._unknown(one)]
        if missing:
            gone = tuple(sequences[index] for index in missing)
            self._fill(gone, [len(one.tokens) for one in gone], [rooms[index] for index in missing], sequences)
        changes: list[tuple[int, int, int]] = []
        for sequence, room in zip(sequences, rooms, strict=True):
            seat = self._seat_of[sequence]
            pages, losses, before = self._sent[seat]
            changes += [(seat, PAGES + at, page) for at, page in enumerate(sequence.pages[pages:], pages)]
            if room != before:
                changes.append((seat, ROOM, room))
            self._sent[seat] = len(sequence.pages), losses, room
        if changes:
            made = numpy.array(changes).T
            seats, columns, values = torch.from_numpy(made.copy()).to(self._device, non_blocking=True)
            self.state[seats, columns] = values

    def _unknown(self, sequence: Sequence) -> bool:
        """Whether the device lacks it; it has nothing in flight then."""
        seat = self._seat_of.get(sequence)
        return seat is None or self._sent[seat][1] != sequence.page_losses

    def _fill(
        self,
        sequences: tuple[Sequence, ...],
        ends: List[int],
        rooms: List[int],
        members: tuple[Sequence, ...] = (),
    ) -> None:
        """All of `sequences` goes to the device: so many tokens of each. `members` keep their seats."""
        strange = [one not in self._seat_of for one in sequences]
        seats = [self._seat(one, (*sequences, *members)) for one in sequences]
        rows = numpy.full((len(sequences), self.state.shape[1]), SCRATCH_PAGE, dtype=numpy.int64)
        for row, one, seat, end, room in zip(rows, sequences, seats, ends, rooms, strict=True):
            row[TOKEN], row[LENGTH], row[ROOM] = one.tokens[end - 1], end, room
            row[PAGES : PAGES + len(one.pages)] = one.pages
            self._sent[seat] = len(one.pages), one.page_losses, room
        at, filled = (torch.from_numpy(part).to(self._device, non_blocking=True) for part in (numpy.array(seats), rows))
        self.state.index_copy_(0, at, filled)
        if self.head is not None and any(strange):
            fresh = torch.tensor([seat for seat, new in zip(seats, strange, strict=True) if new])
            self.head.steps.forget(fresh.to(self._device, non_blocking=True))
        self._planned = ((), ())

    def _plan(self, sequences: tuple[Sequence, ...], widths: tuple[int, ...]) -> None:
        """Seats and rows of the pass, sent where they are not those of the one before."""
        if (sequences, widths) == self._planned:
            return
        if widths != self._planned[1]:
            self._places = Places.of(widths, self._device)
        seats = torch.tensor([self._seat_of[one] for one in sequences])
        self._seats = seats.to(self._device, non_blocking=True)
        self._planned = sequences, widths

    def _seat(self, sequence: Sequence, members: tuple[Sequence, ...]) -> int:
        seat = self._seat_of.get(sequence)
        if seat is None:
            if not self._free:
                self._take_back(members)
            seat = self._seat_of[sequence] = self._free.pop()
        return seat

    def _take_back(self, members: tuple[Sequence, ...]) -> None:
        """The seats of all that have nothing in flight, but for `members` of the next pass."""
        staying = set(members)
        for holder in list(self._seat_of):
            if holder not in staying and not holder.in_flight:
                self._free.append(self._seat_of.pop(holder))
