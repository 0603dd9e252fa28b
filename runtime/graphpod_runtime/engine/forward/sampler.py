"""From logits to the next token: greedy rows cost an argmax, the others are drawn together on the device."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.kernels.sampling.draw import Draw
from graphpod_runtime.kernels.sampling.sampling_tensors import SamplingTensors


def greedy(logits: Tensor) -> Tensor:
    """logits [rows, vocab] -> [rows]; the first of equal maxima, -1 where the largest is not finite: such a row has a
    NaN, an infinity, or nothing but negative infinities."""
    best, tokens = logits.max(dim=-1)
    return tokens.masked_fill(best.isfinite().logical_not(), -1)


def sampling_tensors_of(samplings: list[Sampling], device: torch.device) -> SamplingTensors:
    """What `draw` reads, on `device`. ValueError for one without a seed."""
    if any(sampling.seed is None for sampling in samplings):
        raise ValueError("a row without a seed cannot be drawn; Sampling.seeded gives it one")
    whole = torch.tensor(
        [[_word64(one.seed or 0) for one in samplings], [one.top_k or 2**31 for one in samplings]], dtype=torch.int64
    )
    real = torch.tensor(
        [[one.steepness for one in samplings], [one.top_p for one in samplings], [one.farthest for one in samplings]],
        dtype=torch.float64,
    )
    seeds, top_k = whole.to(device, non_blocking=True)
    steepness, top_p, farthest = real.to(device, non_blocking=True)
    return SamplingTensors(
        seeds,
        steepness.float(),
        top_k,
        top_p,
        farthest.float(),
        cuts_k=any(sampling.top_k for sampling in samplings),
        cuts_p=any(sampling.top_p < 1 for sampling in samplings),
        cuts_far=any(sampling.min_p > 0 for sampling in samplings),
    )


def _word64(seed: int) -> int:
    """The low 64 bits, signed."""
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """How the rows of one batch choose their tokens. It holds as long as the batch has the same members."""

    sequences: tuple[Sequence, ...]
    draw: Draw
    rows: Tensor | None
    """Those that draw; None: all do."""
    draws: SamplingTensors | None
    """None: no row draws."""
    scored: tuple[int, ...]
    """Rows of which log-probabilities are wanted."""
    masked: tuple[int, ...]
    """Rows whose answers have a grammar."""

    @classmethod
    def of(cls, sequences: tuple[Sequence, ...], draw: Draw, device: torch.device) -> "SamplingBatch":
        """On `device`; the host does not wait for it."""
        drawing = [index for index, sequence in enumerate(sequences) if not sequence.sampling.greedy]
        scored = tuple(index for index, sequence in enumerate(sequences) if sequence.wants.answer is not None)
        masked = tuple(index for index, sequence in enumerate(sequences) if sequence.grammar is not None)
        if not drawing:
            return cls(sequences, draw, None, None, scored, masked)
        rows = None
        if len(drawing) < len(sequences):
            rows = torch.tensor(drawing).to(device, non_blocking=True)
        draws = sampling_tensors_of([sequences[index].sampling for index in drawing], device)
        return cls(sequences, draw, rows, draws, scored, masked)

    def tokens(self, logits: Tensor, chosen: Tensor, positions: Tensor) -> Tensor:
        """The next token of each row of logits [rows, vocab]; `chosen` are the greedy ones, `positions` those of the
        tokens that the rows were computed from, both [rows]. -1 for a row without finite logits."""
        if self.draws is None:
            return chosen
        if self.rows is None:
            return self.draw(logits, chosen, positions + 1, self.draws)
        rows = self.rows
        return chosen.index_copy(0, rows, self.draw(logits[rows], chosen[rows], positions[rows] + 1, self.draws))


class Sampler:
    """The sampler of one engine: it remembers the latest batch's parameters on the device."""

    def __init__(self, draw: Draw, device: torch.device) -> None:
        self._draw, self._device = draw, device
        self.empty = self._latest = SamplingBatch.of((), draw, device)

    def batch(self, sequences: tuple[Sequence, ...]) -> SamplingBatch:
        """That of `sequences`, in their order."""
        if self._latest.sequences != sequences:
            self._latest = SamplingBatch.of(sequences, self._draw, self._device)
        return self._latest
