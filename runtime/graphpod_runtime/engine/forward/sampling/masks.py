"""What grammars allow, on its way to the logits of a pass.

The host writes a row of bits for each answer that has a grammar, while the device computes the logits they are for.
"""

import time
from functools import cached_property

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphpod_runtime.base.process.processors import whole_processors
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.forward.sampling.sampler import SamplingBatch
from graphpod_runtime.engine.schedule.yielded import NOTHING_LEFT
from graphpod_runtime.grammar.matcher import MaskWriter
from graphpod_runtime.kernels.sampling.token_mask import BITS, NO_MASK, masker_for, words_of
from graphpod_runtime.wire.counters import Counters

MOST_THREADS = 2
"""That write masks. A row takes 5 µs to 100 µs: more threads wake up for longer than they help (32 rows of 151 936
tokens, on a machine with one H100: 0.99 ms by one thread, 0.93 by two, 1.39 by eight)."""
ALIGNED = 64
"""Words in front of the masks are a multiple of this: a kernel is compiled for the alignment that it sees first."""


class Masks:
    """Those of one engine."""

    def __init__(
        self,
        answers: int,
        rows: int,
        vocabulary: int,
        eos_ids: tuple[int, ...],
        device: torch.device,
        counters: Counters,
        passes: int = 1,
    ) -> None:
        """For passes of at most so many `answers`, whose logits have at most so many `rows`, of so many tokens each. Of
        at most so many `passes` masks are written before the first of them has landed."""
        self._passes, self._turn = passes, 0
        self._answers, self._words, self._device = answers, words_of(vocabulary), device
        self._first = -(-rows // ALIGNED) * ALIGNED
        """Words in front of the masks."""
        self._eos = [(id // BITS, ~(1 << id % BITS)) for id in eos_ids]
        self._mask = masker_for(device)
        self._writer = MaskWriter(min(MOST_THREADS, whole_processors()))
        self._took = counters.observer("graphpod_grammar_mask_duration_seconds")

    def applied(self, members: SamplingBatch, logits: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """As a MaskRows: NOTHING_LEFT is chosen for a row whose grammar allows no token. `logits` stay as they are."""
        host, there = self._rooms[self._turn]
        self._turn = (self._turn + 1) % self._passes
        count, first = len(members.masked), self._first
        end = first + count * self._words
        # By numpy: torch takes ten times as long for a few words, and the device waits.
        words = host.numpy()
        words[: logits.shape[0]] = NO_MASK
        words[list(members.masked)] = range(count)
        self._write(members, words[first:end].reshape(count, self._words))
        if there is not host:
            there[:end].copy_(host[:end], non_blocking=True)
        bits = there[first:end].view(count, self._words)
        return self._mask(logits, chosen, there[: logits.shape[0]], bits, NOTHING_LEFT)

    def _write(self, members: SamplingBatch, words: NDArray[numpy.int32]) -> None:
        """Into `words` [masked, words]. What was there has been read: the pass of those masks has landed."""
        began = time.perf_counter()
        sequences = [members.sequences[row] for row in members.masked]
        grammars = [sequence.grammar for sequence in sequences if sequence.grammar is not None]
        self._writer.write(grammars, words.ctypes.data, self._words * words.itemsize)
        for row, (sequence, grammar) in enumerate(zip(sequences, grammars, strict=True)):
            if grammar.problem is not None:
                words[row] = 0
            elif sequence.ignore_eos:
                for word, others in self._eos:
                    words[row, word] &= others
        self._took(time.perf_counter() - began)

    @cached_property
    def _rooms(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Of passes in turn."""
        return tuple(self._room() for _ in range(self._passes))

    def _room(self) -> tuple[Tensor, Tensor]:
        """For the masks of a pass, on the host and on the device: which of them each row has, then they. They are one
        tensor on a CPU; on the host of a device they are pinned."""
        words = self._first + self._answers * self._words
        if self._device.type == HOST.type:
            room = torch.zeros(words, dtype=torch.int32)
            return room, room
        return torch.zeros(words, dtype=torch.int32, pin_memory=True), torch.empty(
            words, dtype=torch.int32, device=self._device
        )
