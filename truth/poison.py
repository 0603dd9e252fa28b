"""NaN wherever nobody may read: free pages, padded rows, break slots. Where attention masks, a large finite value:
scaled_dot_product_attention gives NaN for NaN at masked positions too.
"""

import torch

from graphpod_policy import EngineConfig
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.sequence import Batch, PrefillBatch, Sequence, Yielded

MASKED = 400.0
"""What the unwritten slots of a live page hold; an 8-bit float can hold it, too."""


class PoisonedRunner:
    """Is Forwarding: `runner`, poisoned before every pass."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.config: EngineConfig = runner.config
        self.pages: PageAllocator = runner.pages
        self.eos_ids: tuple[int, ...] = runner.eos_ids

    def forward(self, batch: Batch) -> Yielded:
        """As the runner's own."""
        engine = self._runner._engine
        with torch.no_grad():
            engine.attention.cache.fill(torch.tensor(self.pages.free_pages, device=engine.device), torch.nan)
            for passing in engine.passes.values():
                for _, tensor in passing.buffers:
                    if tensor.is_floating_point():
                        tensor.fill_(torch.nan)
            for tensor in engine.capturer.breaks.tensors().values():
                tensor.fill_(torch.nan)
            owned = [chunk.sequence for chunk in batch.chunks] if isinstance(batch, PrefillBatch) else batch.sequences
            for sequence in owned:
                self._finite_where_unwritten(sequence)
        return self._runner.forward(batch)

    def _finite_where_unwritten(self, sequence: Sequence) -> None:
        """What a page held before is not this sequence's."""
        cache, size = self._runner._engine.attention.cache, self.config.page_size
        for index in range(sequence.computed, len(sequence.pages) * size):
            page, slot = sequence.pages[index // size], index % size
            for half in (cache.keys, cache.values):
                half[:, page, slot] = MASKED
