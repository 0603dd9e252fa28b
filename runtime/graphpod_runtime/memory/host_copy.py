"""What a span held, in memory of the host."""

import torch
from torch import Tensor

from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.memory.span import Span

SLAB_BYTES = 256 << 20
"""A power of two: torch rounds pinned memory up to one."""


class HostCopy:
    """The bytes of a span. Pinned where the span is on a GPU: copies run at the speed of the bus."""

    def __init__(self, span: Span, read: OnProgress = ignore_progress) -> None:
        """RuntimeError or MemoryError where the host has no memory for it; `read` is called after each slab."""
        self._slabs: list[Tensor] = []
        for first in range(0, span.size, SLAB_BYTES):
            source = span.tensor(first, min(SLAB_BYTES, span.size - first))
            slab = torch.empty(source.shape, dtype=torch.uint8, pin_memory=source.device.type == "cuda")
            slab.copy_(source)
            self._slabs.append(slab)
            read()

    def write(self, span: Span, read: OnProgress = ignore_progress) -> None:
        """The same bytes into `span`, which has its memory."""
        for index, slab in enumerate(self._slabs):
            span.tensor(index * SLAB_BYTES, slab.shape[0]).copy_(slab, non_blocking=True)
            read()
        if self._slabs and self._slabs[0].is_pinned():
            torch.cuda.synchronize()
