"""Poison: whatever a pass must not read is made to show. NaN lies in pages that no sequence owns, in padded rows, in
break slots and in output buffers; what attention reads and masks (unwritten slots of a live page, the scratch page)
holds a large finite value, because attention gives NaN for NaN at masked positions, too.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as List

import torch
from torch import Tensor

from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.forward.passes import Pass
from graphpod_runtime.engine.schedule.batch import Batch, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.graphs.break_arena import BreakArena

UNWRITTEN = 1000.0
NO_TOKEN = -1
"""A count of it would be of a place outside the vocabulary."""


class Poison:
    """Of one Ready engine. Slow: it writes the whole cache before every pass. Pages that a flight can still write to
    are not free, so they are left alone."""

    def __init__(
        self,
        attention: AttentionBackend,
        pages: PageAllocator,
        passes: Iterable[Pass],
        breaks: BreakArena,
        lengths: Callable[[List[Sequence]], list[int]] | None = None,
        draft: AttentionBackend | None = None,
    ) -> None:
        """`lengths`: the tokens of sequences where only the device knows them. `draft`: that of a draft model, whose
        cache has the same pages."""
        self._attention, self._pages, self._breaks = attention, pages, breaks
        self._attentions = (attention,) if draft is None else (attention, draft)
        self._lengths = lengths
        self._spoilt: list[Tensor] = []
        for passing in passes:
            passing.buffers.pad_with_nan()
            self._spoilt += [tensor for _, tensor in (*passing.buffers, *passing.outputs)]

    def spoil(self, batch: Batch) -> None:
        """Before the pass of `batch`."""
        cache = self._attention.cache
        free = torch.tensor(self._pages.free_pages, dtype=torch.int64, device=cache.device)
        for one in self._attentions:
            one.cache.fill(free, torch.nan)
        cache.slot_tokens.index_fill_(0, free, NO_TOKEN)
        for tensor in (*self._spoilt, *self._breaks.tensors().values()):
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)
        if isinstance(batch, PrefillBatch):
            for chunk in batch.chunks:
                self._fill_unwritten(chunk.sequence, chunk.start)
        else:
            ends = batch.ends if self._lengths is None else self._lengths(batch.sequences)
            for sequence, end in zip(batch.sequences, ends, strict=True):
                self._fill_unwritten(sequence, end - 1)

    def _fill_unwritten(self, sequence: Sequence, written: int) -> None:
        """Of its pages, the slots behind the tokens that are `written` when the pass runs."""
        for cache in (one.cache for one in self._attentions):
            size = cache.page_size
            whole = -(-written // size)
            cache.fill(torch.tensor(sequence.pages[whole:], dtype=torch.int64, device=cache.device), UNWRITTEN)
            if written % size:
                cache.fill_end(sequence.pages[whole - 1], written % size, UNWRITTEN)
