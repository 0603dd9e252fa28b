"""What grammars allow, on its way to the logits of a pass.

The host writes a row of bits for each answer that has a grammar, while the device computes the logits they are for.
"""

import os
import time
from functools import cached_property

import torch
from torch import Tensor

from graphpod_runtime.engine.forward.sampler import SamplingBatch, greedy
from graphpod_runtime.engine.schedule.batch import NOTHING_LEFT
from graphpod_runtime.grammar.matcher import MaskWriter
from graphpod_runtime.kernels.sampling.token_mask import BITS, MaskRows, masker_for, words_of
from graphpod_runtime.wire.counters import Counters

MOST_THREADS = 8
"""That write masks: a row takes 5 µs to 100 µs, and 35 ms where its grammar is at the bounds."""


def masked(mask: MaskRows, logits: Tensor, chosen: Tensor, rows: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [all, vocab] in which `rows` [masked] have -inf where their bits [masked, words] allow no token, and the
    greedy tokens [all], which were `chosen` without: NOTHING_LEFT where none is.
    """
    logits = mask(logits, rows, bits)
    before, best = chosen[rows], greedy(logits[rows])
    # A row that was not finite stays so, whatever the mask hides of it.
    best = torch.where(before < 0, before, best.masked_fill(best < 0, NOTHING_LEFT))
    return logits, chosen.index_copy(0, rows, best)


class Masks:
    """Those of one engine."""

    def __init__(
        self, rows: int, vocabulary: int, eos_ids: tuple[int, ...], device: torch.device, counters: Counters
    ) -> None:
        """For passes of at most so many `rows` and logits of so many tokens."""
        self._rows, self._words, self._device = rows, words_of(vocabulary), device
        self._eos = [(id // BITS, ~(1 << id % BITS)) for id in eos_ids]
        self._mask = masker_for(device)
        self._writer = MaskWriter(min(MOST_THREADS, len(os.sched_getaffinity(0))))
        self._took = counters.observer("graphpod_grammar_mask_duration_seconds")

    def applied(self, members: SamplingBatch, logits: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """As `masked`, for the rows that have grammars. `logits` stay as they are."""
        bits = self._bits(members)
        rows = torch.tensor(members.masked).to(self._device, non_blocking=True)
        return masked(self._mask, logits, chosen, rows, bits.to(self._device, non_blocking=True))

    def _bits(self, members: SamplingBatch) -> Tensor:
        """[masked, words] on the host. What it gave before has been read: the pass of those masks has landed."""
        began = time.perf_counter()
        sequences = [members.sequences[row] for row in members.masked]
        grammars = [sequence.grammar for sequence in sequences if sequence.grammar is not None]
        bits = self._host[: len(grammars)]
        self._writer.write(grammars, bits.data_ptr(), self._words * bits.itemsize)
        words = bits.numpy()
        for row, (sequence, grammar) in enumerate(zip(sequences, grammars, strict=True)):
            if grammar.problem is not None:
                words[row] = 0
            elif sequence.ignore_eos:
                for word, others in self._eos:
                    words[row, word] &= others
        self._took(time.perf_counter() - began)
        return bits

    @cached_property
    def _host(self) -> Tensor:
        """Room for the masks of a pass; pinned where they are copied to a device."""
        return torch.zeros(self._rows, self._words, dtype=torch.int32, pin_memory=self._device.type == "cuda")
