"""From logits to the next token: greedy rows cost an argmax, the others are drawn together on the device."""

import sys
from collections.abc import Sequence as List
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from graphpod_runtime.engine.forward.sampling.processors import History, Processors
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import NOT_FINITE, NOTHING_LEFT
from graphpod_runtime.kernels.sampling.draw import Draw, rows_of_work
from graphpod_runtime.kernels.sampling.sampling_tensors import SamplingTensors


def greedy(logits: Tensor) -> Tensor:
    """logits [rows, vocab] -> [rows]; the first of equal maxima, NOT_FINITE where the largest is not finite: such a
    row has a NaN, an infinity, or nothing but negative infinities."""
    best, tokens = logits.max(dim=-1)
    return tokens.masked_fill(best.isfinite().logical_not(), NOT_FINITE)


def rows_at_once(vocab: int, context: int) -> int:
    """Rows that are processed at one time, of sequences of up to `context` tokens: their tokens take memory, too."""
    return rows_of_work(max(vocab, 2 * context))


def sampling_tensors_of(samplings: list[Sampling], device: torch.device) -> SamplingTensors:
    """What `draw` reads, on `device`, by one copy. ValueError for one without a seed."""
    if any(sampling.seed is None for sampling in samplings):
        raise ValueError("a row without a seed cannot be drawn; Sampling.seeded gives it one")
    words = numpy.empty((4, len(samplings)), dtype=numpy.int64)
    words[0] = [_word64(one.seed or 0) for one in samplings]
    words[1] = [one.top_k or 2**31 for one in samplings]
    words[2].view(numpy.float64)[:] = [one.top_p for one in samplings]
    singles = [*(one.steepness for one in samplings), *(one.farthest for one in samplings)]
    words[3].view(numpy.float32)[:] = singles
    seeds, top_k, top_p, both = torch.from_numpy(words).to(device, non_blocking=True)
    steepness, farthest = both.view(torch.float32).chunk(2)
    return SamplingTensors(
        seeds,
        steepness,
        top_k,
        top_p.view(torch.float64),
        farthest,
        cuts_k=any(sampling.top_k for sampling in samplings),
        cuts_p=any(sampling.top_p < 1 for sampling in samplings),
        cuts_far=any(sampling.min_p > 0 for sampling in samplings),
    )


def _word64(seed: int) -> int:
    """The low 64 bits, signed."""
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True, slots=True)
class Drawing:
    """How some rows choose from their logits."""

    draw: Draw
    rows: Tensor | None
    """Those that draw; None: all do."""
    draws: SamplingTensors | None
    """None: no row draws."""

    @classmethod
    def of(cls, samplings: list[Sampling], draw: Draw, device: torch.device, among: list[int]) -> "Drawing":
        """On `device`, of the rows `among` these; the host does not wait for it."""
        drawing = [row for row in among if not samplings[row].greedy]
        if not drawing:
            return cls(draw, None, None)
        rows = None if len(drawing) == len(samplings) else _sent(drawing, device)
        return cls(draw, rows, sampling_tensors_of([samplings[row] for row in drawing], device))

    def tokens(self, logits: Tensor, chosen: Tensor, positions: Tensor) -> Tensor:
        """As `SamplingBatch.tokens`."""
        if self.draws is None:
            return chosen
        if self.rows is None:
            return self.draw(logits, chosen, positions, self.draws)
        rows = self.rows
        return chosen.index_copy(0, rows, self.draw(logits[rows], chosen[rows], positions[rows], self.draws))


@dataclass(frozen=True, slots=True)
class Processed:
    """Rows of a batch whose logits are processed before they choose; as many as are worked on at one time."""

    members: tuple[int, ...]
    rows: Tensor
    """The same, on the device."""
    processors: Processors
    drawing: Drawing

    @classmethod
    def of(
        cls, sequences: tuple[Sequence, ...], members: list[int], draw: Draw, device: torch.device, eos_ids: List[int]
    ) -> "Processed":
        """Of `members`, rows of the batch `sequences`."""
        own = tuple(sequences[row] for row in members)
        drawing = Drawing.of([one.sampling for one in own], draw, device, list(range(len(own))))
        return cls(tuple(members), _sent(members, device), Processors.of(own, eos_ids, device), drawing)

    def tokens(self, logits: Tensor, chosen: Tensor, positions: Tensor, history: History | None) -> Tensor:
        """The tokens of these rows; the arguments are of the whole batch."""
        work, own, best = logits[self.rows].float(), positions[self.rows], chosen[self.rows]
        self.processors.apply_(work, own, history and history.of(self.rows))
        tokens = self.drawing.tokens(work, greedy(work), own)
        # A NaN where a mask was is a NaN all the same; a row that was finite has nothing but masks left.
        return torch.where(best < 0, best, tokens.masked_fill(tokens < 0, NOTHING_LEFT))


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """How the rows of one batch choose their tokens. It holds as long as the batch has the same members."""

    sequences: tuple[Sequence, ...]
    drawing: Drawing
    """Of the rows that are not processed."""
    processed: tuple[Processed, ...]
    scored: tuple[int, ...]
    """Rows of which log-probabilities are wanted."""
    reading: tuple[int, ...]
    """Rows whose processors read what they have been written."""
    masked: tuple[int, ...]
    """Rows whose answers have a grammar."""

    @classmethod
    def of(
        cls,
        sequences: tuple[Sequence, ...],
        draw: Draw,
        device: torch.device,
        eos_ids: List[int] = (),
        at_once: int = sys.maxsize,
    ) -> "SamplingBatch":
        """On `device`; the host does not wait for it. At most `at_once` rows are processed at one time."""
        samplings = [sequence.sampling for sequence in sequences]
        plain = [row for row, one in enumerate(samplings) if not one.processing.changes]
        scored = tuple(row for row, sequence in enumerate(sequences) if sequence.wants.answer is not None)
        masked = tuple(row for row, sequence in enumerate(sequences) if sequence.grammar is not None)
        drawing = Drawing.of(samplings, draw, device, plain)
        if len(plain) == len(sequences):
            return cls(sequences, drawing, (), scored, (), masked)
        changed = [row for row, one in enumerate(samplings) if one.processing.changes]
        parts = (changed[first : first + at_once] for first in range(0, len(changed), at_once))
        processed = tuple(Processed.of(sequences, part, draw, device, eos_ids) for part in parts)
        reading = tuple(row for row in changed if samplings[row].processing.reads_tokens)
        return cls(sequences, drawing, processed, scored, reading, masked)

    def tokens(self, logits: Tensor, chosen: Tensor, positions: Tensor, history: History | None = None) -> Tensor:
        """The next token of each row of logits [rows, vocab]; `chosen` are the greedy ones, `positions` those of the
        tokens that the rows were computed from, both [rows]. NOT_FINITE for a row without finite logits, NOTHING_LEFT
        for one of which processors have masked every token. `history`: of the rows, where any is `reading`."""
        tokens = self.drawing.tokens(logits, chosen, positions)
        if not self.processed:
            return tokens
        for part in self.processed:
            tokens = tokens.index_copy(0, part.rows, part.tokens(logits, chosen, positions, history))
        return tokens


class Sampler:
    """The sampler of one engine: it remembers the latest batch's parameters on the device."""

    def __init__(self, draw: Draw, device: torch.device, eos_ids: List[int] = (), at_once: int = sys.maxsize) -> None:
        """`eos_ids`: the model's ends, which min_tokens masks. `at_once`: rows that are processed at one time."""
        self._draw, self._device, self._eos_ids, self._at_once = draw, device, eos_ids, at_once
        self.empty = self._latest = SamplingBatch.of((), draw, device)

    def batch(self, sequences: tuple[Sequence, ...]) -> SamplingBatch:
        """That of `sequences`, in their order."""
        if self._latest.sequences != sequences:
            self._latest = SamplingBatch.of(sequences, self._draw, self._device, self._eos_ids, self._at_once)
        return self._latest


def _sent(rows: List[int], device: torch.device) -> Tensor:
    return torch.tensor(rows).to(device, non_blocking=True)
