"""Paged attention by flashinfer's kernels: 16-bit queries on a GPU, over a cache of their type or in FP8.

flashinfer plans on the host: it splits the work of a batch over the device once, and `run` uses that split for every
layer. A captured step freezes the launch, so its planner works in fixed buffers, one set for each size; that planner
chooses a split whose grid is the same for every batch of the size.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from graphpod_runtime.attention.base import Metadata
from graphpod_runtime.attention.staging import PinnedRing
from graphpod_runtime.base.errors import SelfCheckFailed
from graphpod_runtime.base.shapes import KvScale, ModelShape
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.kernels.rows import rows_for

WORKSPACE, PLAN_WORKSPACE = 256 << 20, 8 << 20
"""Bytes for partial results of split work, and for a plan. All planners share them: a pass is planned just before it
runs, and passes run one after the other on the device. The host may be ahead, so it writes plans into a ring."""
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
        used = numpy.arange(table.shape[1]) < counts[:, None]
        indptr = numpy.concatenate(([0], counts.cumsum()))
        parts = (indptr, table[used], tokens - (counts - 1) * page_size, tokens)
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
    found: list[int] = []
    for name, wanted in (("keys", cache[0]), ("values", cache[1]), ("scale", marked)):
        places = [index for index, argument in enumerate(keeper.arguments) if argument is wanted]
        if len(places) != 1:
            raise RuntimeError(
                f"this flashinfer passes the {name} of a layer to its kernels {len(places)} times, not once, among "
                f"{len(keeper.arguments)} arguments; install the version in pyproject.toml, or set "
                "spec.engine.attention to Torch"
            )
        found += places
    return Frozen(module.paged_run, list(keeper.arguments), (found[0], found[1], found[2]))


class Launches:
    """The launch that was planned for each captured size. A graph holds it; a plan that needs another cannot be run by
    the graph, whose kernels would read the plan's arrays at places where it has not put them."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, ...]] = {}

    def same(self, size: int, planned: Iterable[int]) -> None:
        """Keeps the first launch of `size`. SelfCheckFailed for a later one that differs."""
        launch = tuple(int(number) for number in planned)
        captured = self._of.setdefault(size, launch)
        if launch != captured:
            raise SelfCheckFailed(
                f"decode size {size}: flashinfer planned the launch {list(launch)} for a graph that holds "
                f"{list(captured)}; set spec.graph.decode to Breakable, or spec.engine.attention to Torch"
            )

    def forget(self) -> None:
        """Graphs of before are gone."""
        self._of.clear()


class FlashInferAttention:
    """The Backend on flashinfer 0.6, for models whose layers attend to everything. Prefill by `prefill` (fa2 or fa3),
    decode by its tensor-core kernel.
    """

    cache: KvCache

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device, prefill: str) -> None:
        import flashinfer

        self.name = f"flashinfer/{prefill}"
        self._flashinfer = flashinfer
        self._shape, self._dtype, self._device = shape, dtype, device
        self._workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=device)
        self._plan_workspace = torch.empty(PLAN_WORKSPACE, dtype=torch.uint8, device=device)
        self._ring = PinnedRing(PLAN_WORKSPACE)
        self._rows = rows_for(device)
        self._prefill = self._ready(
            flashinfer.BatchPrefillWithPagedKVCacheWrapper(self._workspace, LAYOUT, backend=prefill)
        )
        self._decode = self._decode_planner()
        self._steps: dict[int, Any] = {}
        self._launches = Launches()

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
        # Their launches were planned for another cache.
        self._steps.clear()
        self._launches.forget()

    def reserve(self, rows: int, pages: int) -> Buffers:
        self._pages_of_one = pages
        self._static = Buffers(
            Slot("slots", rows, (), torch.int64, padding=SCRATCH_PAGE),
            Slot("indptr", rows + 1, (), torch.int32, padding=None),
            Slot("indices", rows * pages, (), torch.int32, padding=None),
            Slot("last", rows, (), torch.int32, padding=None),
            device=self._device,
        )
        return self._static

    def plan(self, metadata: Metadata) -> None:
        self._slots = metadata.slots.to(self._device, non_blocking=True)
        pages = PageLists.of(metadata.tables, metadata.lengths, self.cache.page_size)
        if metadata.one_row_each:
            self._planned = self._decode
            self._plan(self._decode, None, pages)
        else:
            self._planned = self._prefill
            self._plan(self._prefill, metadata.starts.int(), pages, causal=True)

    def plan_step(self, metadata: Metadata, size: int) -> None:
        count = metadata.lengths.shape[0]
        tables = torch.full((size, metadata.tables.shape[1]), SCRATCH_PAGE)
        tables[:count] = metadata.tables
        # A row beyond the live ones attends to one token of the scratch page: over nothing it would be NaN.
        lengths = torch.ones(size, dtype=torch.int64)
        lengths[:count] = metadata.lengths
        self._static.load("slots", metadata.slots, size)
        self._slots = self._static.view("slots", size)
        if size not in self._steps:
            self._steps[size] = self._decode_planner(size)
        self._planned = self._steps[size]
        self._plan(self._planned, None, PageLists.of(tables, lengths, self.cache.page_size))
        self._launches.same(size, self._planned._plan_info)

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        # Without a place for its result, flashinfer would make one and fill it with zeros.
        if out is None:
            out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2])
        return self.over(q, k, v, out)(layer)

    def over(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        write = self._rows.writer(k, v, self._slots)
        kernel = frozen(self._planned, q, self._layers[0].pages, out.view(q.shape))

        def run(layer: int) -> Tensor:
            own = self._layers[layer]
            write(*own.slots, own.stored)
            kernel.run(*own.pages, own.softmax)
            return out if own.stored.value == 1.0 else out.mul_(own.stored.value)

        return run

    def _decode_planner(self, size: int | None = None) -> Any:
        """Of eager batches of any size, or of captured steps of `size` rows."""
        fixed: dict[str, object] = {}
        if size is not None:
            fixed = {
                "use_cuda_graph": True,
                "paged_kv_indptr_buffer": self._static.view("indptr", size + 1),
                "paged_kv_indices_buffer": self._static.view("indices", size * self._pages_of_one),
                "paged_kv_last_page_len_buffer": self._static.view("last", size),
            }
        return self._ready(
            self._flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                self._workspace, LAYOUT, use_tensor_cores=True, backend="fa2", **fixed
            )
        )

    def _ready(self, planner: Any) -> Any:
        """`planner` without workspaces of its own; its host memory comes with each plan."""
        planner._int_workspace_buffer = self._plan_workspace
        planner._pin_memory_int_workspace_buffer = None
        return planner

    def _plan(self, planner: Any, starts: Tensor | None, pages: PageLists, **options: Any) -> None:
        """Plans rows `starts` (None: one row each) over `pages`. The host does not wait for the device."""
        # From the host, flashinfer would wait until the indices are copied.
        indices = pages.indices.to(self._device, non_blocking=True)
        with self._ring.lend() as staging:
            planner._pin_memory_int_workspace_buffer = staging
            planner.plan(
                *(() if starts is None else (starts,)),
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
                **options,
            )
