"""flashinfer's prefill kernels without its wrapper class: a plan for a pass, then one call a layer.

The wrapper checks and converts what is the same for every layer, in Python: with it a break took 34 µs of the host, and
a small prefill waits for the host. The arguments are those that flashinfer 0.6's wrapper gives its compiled module
(`flashinfer/prefill.py`, `plan` and `paged_run`); tests/gpu/test_attention.py holds them to the truth.
"""

from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphpod_runtime.attention.pinned_memory import PinnedRing
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import ModelShape

WORKSPACE, PLAN_WORKSPACE = 256 << 20, 8 << 20
"""Bytes for partial results of split work, and for a plan. The host may be ahead, so it writes plans into a ring."""
NO_POSITIONS, CAUSAL, NHD = 0, 1, 0
"""flashinfer's numbers of a position encoding, a mask and a layout: [pages, page_size, kv_heads, head_dim]."""
NO_WINDOW, NO_CAP = -1, 0.0
NO_SPLIT_SIZE, MAY_SPLIT, NO_SHARED_BLOCKS = -1, False, 0
"""What fa2 plans with in addition."""


@dataclass(frozen=True, slots=True)
class PageLists:
    """Pages as flashinfer reads them: sequence i has pages indices[indptr[i]:indptr[i + 1]], the last of which holds
    last[i] of its lengths[i] tokens, and rows starts[i] to starts[i + 1]. All int32, on the host.
    """

    starts: NDArray[numpy.int32]
    indptr: NDArray[numpy.int32]
    last: NDArray[numpy.int32]
    indices: NDArray[numpy.int32]
    lengths: NDArray[numpy.int32]

    @classmethod
    def of(cls, inputs: Inputs, page_size: int) -> "PageLists":
        """Those of a pass whose tables, lengths and starts are on the host."""
        # By numpy: a dozen steps on a few numbers each are quicker there than in torch.
        table, tokens = inputs.tables.numpy(), inputs.lengths.numpy()
        counts = -(-tokens // page_size)
        indices = table[numpy.arange(table.shape[1]) < counts[:, None]]
        indptr = numpy.concatenate(([0], counts.cumsum()))
        parts = (inputs.starts.numpy(), indptr, tokens - (counts - 1) * page_size, indices, tokens)
        return cls(*(part.astype(numpy.int32) for part in parts))

    def on(self, device: torch.device) -> tuple[Tensor, ...]:
        """Starts, indptr, indices and last on `device`, by one copy for which the host does not wait."""
        parts = (self.starts, self.indptr, self.indices, self.last)
        whole = torch.from_numpy(numpy.concatenate(parts)).to(device, non_blocking=True)
        return whole.split([part.size for part in parts])


class FlashInferPrefill:
    """Prefill over a paged cache by `kernels`, fa2 or fa3."""

    def __init__(
        self, kernels: str, shape: ModelShape, dtype: torch.dtype, kv_dtype: torch.dtype, device: torch.device
    ) -> None:
        from flashinfer.jit import gen_batch_prefill_module
        from flashinfer.utils import device_support_pdl

        windowed = capped = half_scores = False
        self._module: Any = gen_batch_prefill_module(
            kernels, dtype, kv_dtype, dtype, torch.int32, shape.head_dim, shape.head_dim,
            NO_POSITIONS, windowed, capped, half_scores,
        ).build_and_load()  # fmt: skip
        self._kernels, self._shape, self._device = kernels, shape, device
        self._early_launch: bool = device_support_pdl(device)
        self._work = torch.zeros(WORKSPACE, dtype=torch.uint8, device=device)
        self._plan_work = torch.empty(PLAN_WORKSPACE, dtype=torch.uint8, device=device)
        self._ring = PinnedRing(PLAN_WORKSPACE)
        self._plan: Any = None
        self._lists: tuple[Tensor, ...] = ()
        # fa2: a mask and its bounds, slopes, three of several items, two of scales of 4-bit caches; then rotary scale
        # and base. fa3: three of several items, the values' scale, as a tensor and as a number.
        self._absent = (None,) * (8 if kernels == "fa2" else 4)
        self._after = (1.0, 1e-4, 0) if kernels == "fa2" else (1.0, 0)

    def plan(self, inputs: Inputs, page_size: int) -> None:
        """The next calls are over these rows. Their work is split over the device once, for all layers."""
        pages, shape = PageLists.of(inputs, page_size), self._shape
        self._lists = pages.on(self._device)
        on_host = (torch.from_numpy(part) for part in (pages.starts, pages.indptr, pages.lengths))
        more = (NO_SPLIT_SIZE, MAY_SPLIT, NO_SHARED_BLOCKS) if self._kernels == "fa2" else ()
        with self._ring.lend() as staging:
            self._plan = self._module.plan(
                self._work, self._plan_work, staging, *on_host, inputs.count, pages.lengths.size,
                shape.heads, shape.kv_heads, page_size, False, shape.head_dim, shape.head_dim, True, NO_WINDOW, *more,
            )  # fmt: skip

    def call(self, q: Tensor, out: Tensor) -> "PrefillCall":
        """Attention of the planned rows q [tokens, heads, d] into `out` of its shape, for any layer."""
        before = (self._work, self._plan_work, self._plan, q)
        between = (*self._lists, out, None, CAUSAL, NHD, NO_WINDOW, self._early_launch, *self._absent, NO_CAP)
        return PrefillCall(self._module.paged_run, before, between, self._after)


class PrefillCall:
    """A kernel and the arguments of a pass, without those that differ from layer to layer."""

    __slots__ = ("_after", "_before", "_between", "_kernel")

    def __init__(self, kernel: Any, before: tuple[Any, ...], between: tuple[Any, ...], after: tuple[Any, ...]) -> None:
        """In front of the cache, between it and the scale, behind the scale."""
        self._kernel, self._before, self._between, self._after = kernel, before, between, after

    def __call__(self, keys: Tensor, values: Tensor, scale: float) -> None:
        """One layer: its pages of keys and values, and the scale of query · stored key."""
        self._kernel(*self._before, keys, values, *self._between, scale, *self._after)
