"""Prefill by flashinfer's kernels, decode by ours: 16-bit queries on a GPU, over a cache of their type or in FP8.

flashinfer plans on the host: it splits the work of a batch over the device once, and `run` uses that split for every
layer. No graph holds its kernels: prefill attention is a break.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from graphpod_runtime.attention.pinned_memory import PinnedRing
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import KvScale, ModelShape
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.kernels.row_copies import rows_for

WORKSPACE, PLAN_WORKSPACE = 256 << 20, 8 << 20
"""Bytes for partial results of split work, and for a plan. The host may be ahead, so it writes plans into a ring."""
LAYOUT = "NHD"
"""[pages, page_size, kv_heads, head_dim], as our cache."""


@dataclass(frozen=True, slots=True)
class PageLists:
    """Pages as flashinfer reads them: sequence i has pages indices[indptr[i]:indptr[i + 1]], the last of which holds
    last[i] of its lengths[i] tokens. All int32, on the host.
    """

    indptr: Tensor
    indices: Tensor
    last: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, tables: Tensor, lengths: Tensor, page_size: int) -> "PageLists":
        """From a block table [sequences, pages] and the tokens of each sequence."""
        # By numpy: a dozen steps on a few numbers each are quicker there than in torch.
        table, tokens = tables.numpy(), lengths.numpy()
        counts = -(-tokens // page_size)
        indices = table[numpy.arange(table.shape[1]) < counts[:, None]]
        indptr = numpy.concatenate(([0], counts.cumsum()))
        parts = (indptr, indices, tokens - (counts - 1) * page_size, tokens)
        return cls(*(torch.from_numpy(part.astype(numpy.int32)) for part in parts))


class _Layer(NamedTuple):
    """What differs from layer to layer: its cache, as pages and as slots, and its scales."""

    pages: tuple[Tensor, Tensor]
    slots: tuple[Tensor, Tensor]
    stored: KvScale
    softmax: float
    """Of query · stored key."""


class _Module:
    """In the place of a planner's kernels: keeps what they would be called with."""

    arguments: tuple[Any, ...]

    def paged_run(self, *arguments: Any) -> None:
        self.arguments = arguments


class _Marked(float):
    """A scale that is found among arguments by being this very object."""


class Frozen(NamedTuple):
    """A kernel, the arguments of a call, and where those stand that differ from layer to layer: keys, values, and the
    scale of query · key."""

    kernel: Callable[..., None]
    arguments: list[Any]
    at: tuple[int, int, int]

    def run(self, keys: Tensor, values: Tensor, scale: float) -> None:
        """The call of another layer."""
        self.arguments[self.at[0]], self.arguments[self.at[1]], self.arguments[self.at[2]] = keys, values, scale
        self.kernel(*self.arguments)


def frozen(planner: Any, q: Tensor, cache: tuple[Tensor, Tensor], out: Tensor) -> Frozen:
    """The kernel that `planner.run` would call with its arguments: finding them takes longer than the call.

    What differs from layer to layer is found by identity, wherever this flashinfer passes it. RuntimeError when one of
    the three is not passed exactly once, as it was given.
    """
    module, scale, keeper = planner._cached_module, planner._sm_scale, _Module()
    marked = _Marked(scale)
    planner._cached_module, planner._sm_scale = keeper, marked
    try:
        planner.run(q, cache, out=out)
    finally:
        planner._cached_module, planner._sm_scale = module, scale
    found = [
        _place(name, wanted, keeper.arguments)
        for name, wanted in (("keys", cache[0]), ("values", cache[1]), ("scale", marked))
    ]
    return Frozen(module.paged_run, list(keeper.arguments), (found[0], found[1], found[2]))


def _place(name: str, wanted: object, arguments: tuple[Any, ...]) -> int:
    """Where this very object stands."""
    places = [index for index, argument in enumerate(arguments) if argument is wanted]
    if len(places) != 1:
        raise RuntimeError(
            f"this flashinfer passes the {name} of a layer to its kernels {len(places)} times, not once, among "
            f"{len(arguments)} arguments; install the version in pyproject.toml, or set spec.engine.attention to Torch"
        )
    return places[0]


class FlashInferAttention:
    """The Backend on flashinfer 0.6, for models whose layers attend to everything: prefill by `prefill` (fa2 or fa3),
    decode by PagedDecode."""

    cache: KvCache
    reads_whole_tables = False

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device, prefill: str) -> None:
        import flashinfer

        from graphpod_runtime.attention.paged_decode import PagedDecode

        self.name = f"flashinfer/{prefill}"
        self._shape, self._dtype, self._device = shape, dtype, device
        self._ring = PinnedRing(PLAN_WORKSPACE)
        self._rows = rows_for(device)
        self._prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
            torch.zeros(WORKSPACE, dtype=torch.uint8, device=device), LAYOUT, backend=prefill
        )
        self._prefill._int_workspace_buffer = torch.empty(PLAN_WORKSPACE, dtype=torch.uint8, device=device)
        self._prefill._pin_memory_int_workspace_buffer = None  # it comes with each plan
        self._decode = PagedDecode(shape, dtype, device)
        self._decodes = False

    def bind(self, cache: KvCache) -> None:
        self.cache = cache
        self._layers = [
            _Layer(
                pages=(keys, values),
                slots=(keys.flatten(0, 1), values.flatten(0, 1)),
                stored=scale,
                softmax=self._shape.softmax_scale * scale.key,
            )
            for keys, values, scale in zip(cache.keys, cache.values, cache.scales, strict=True)
        ]
        self._decode.bind(cache)

    def reserve(self, rows: int, pages: int) -> Iterable[tuple[str, Tensor]]:
        return self._decode.reserve(rows, pages)

    def plan(self, inputs: Inputs) -> None:
        self._decodes = inputs.one_row_each
        if self._decodes:
            self._decode.plan(inputs)
            return
        self._slots = inputs.slots.to(self._device, non_blocking=True)
        pages = PageLists.of(inputs.tables, inputs.lengths, self.cache.page_size)
        # From the host, flashinfer would wait until the indices are copied.
        indices = pages.indices.to(self._device, non_blocking=True)
        with self._ring.lend() as staging:
            self._prefill._pin_memory_int_workspace_buffer = staging
            self._prefill.plan(
                inputs.starts.int(),
                pages.indptr,
                indices,
                pages.last,
                self._shape.heads,
                self._shape.kv_heads,
                self._shape.head_dim,
                self.cache.page_size,
                q_data_type=self._dtype,
                kv_data_type=self.cache.keys.dtype,
                sm_scale=self._shape.softmax_scale,
                seq_lens=pages.lengths,
                causal=True,
            )

    def plan_step(self, inputs: Inputs, size: int) -> None:
        self._decodes = True
        self._decode.plan_step(inputs, size)

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        # Without a place for its result, flashinfer would make one and fill it with zeros.
        if out is None:
            out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2])
        return self.over(q, k, v, out)(layer)

    def over(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        if self._decodes:
            return self._decode.over(q, k, v, out)
        write = self._rows.writer(k, v, self._slots)
        kernel = frozen(self._prefill, q, self._layers[0].pages, out.view(q.shape))

        def run(layer: int) -> Tensor:
            own = self._layers[layer]
            write(*own.slots, own.stored)
            kernel.run(*own.pages, own.softmax)
            return out if own.stored.value == 1.0 else out.mul_(own.stored.value)

        return run
