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
    def of(cls, tables: Tensor, lengths: Tensor, page_size: int, rows: int = 0) -> "PageLists":
        """From a block table [sequences, pages] and the tokens of each sequence. Up to `rows` more sequences follow, of
        one token of the scratch page: over nothing attention would be NaN."""
        # By numpy: a dozen steps on a few numbers each are quicker there than in torch.
        table, tokens = tables.numpy(), lengths.numpy()
        counts = -(-tokens // page_size)
        indices = table[numpy.arange(table.shape[1]) < counts[:, None]]
        if (padding := rows - tokens.shape[0]) > 0:
            ones = numpy.ones(padding, dtype=numpy.int64)
            tokens, counts = numpy.concatenate((tokens, ones)), numpy.concatenate((counts, ones))
            indices = numpy.concatenate((indices, ones * SCRATCH_PAGE))
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


class _Planning:
    """In the place of a planner's kernels: keeps what they would be asked to plan."""

    arguments: tuple[Any, ...]

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels

    def plan(self, *arguments: Any) -> Any:
        self.arguments = arguments
        return self._kernels.plan(*arguments)


class StepPlan(NamedTuple):
    """Plans steps of one size: the kernels' own planner, its arguments, and where those stand that differ from step to
    step: pinned memory to write the plan in, indptr and lengths.

    flashinfer's wrapper around it copies each list by itself and looks at lengths one by one.
    """

    plan: Callable[..., Iterable[int]]
    arguments: list[Any]
    at: tuple[int, int, int]

    @classmethod
    def of(cls, planner: Any, staging: Tensor, lists: PageLists, plan: Callable[[], None]) -> "StepPlan":
        """What `plan`, which makes `planner` plan `lists` in `staging`, calls. RuntimeError where one of the three is
        not passed exactly once."""
        plan()
        kernels = planner._cached_module
        watched = _Planning(kernels)
        planner._jit_module = watched
        try:
            plan()
        finally:
            planner._jit_module, planner._cached_module = None, kernels
        varying = (("memory", staging), ("indptr", lists.indptr), ("lengths", lists.lengths))
        at = tuple(_place(name, wanted, watched.arguments) for name, wanted in varying)
        return cls(kernels.plan, list(watched.arguments), (at[0], at[1], at[2]))

    def launch(self, staging: Tensor, lists: PageLists) -> Iterable[int]:
        """The launch for these lists; its arrays are on their way to the device."""
        for place, argument in zip(self.at, (staging, lists.indptr, lists.lengths), strict=True):
            self.arguments[place] = argument
        return self.plan(*self.arguments)


def _place(name: str, wanted: object, arguments: tuple[Any, ...]) -> int:
    """Where this very object stands."""
    places = [index for index, argument in enumerate(arguments) if argument is wanted]
    if len(places) != 1:
        raise RuntimeError(
            f"this flashinfer passes the {name} of a layer or step to its kernels {len(places)} times, not once, among "
            f"{len(arguments)} arguments; install the version in pyproject.toml, or set spec.engine.attention to Torch"
        )
    return places[0]


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


class StepLists(NamedTuple):
    """The lists of captured steps of one size, on the device: one behind the other, so that one copy brings them."""

    indptr: Tensor
    last: Tensor
    indices: Tensor
    all: Tensor

    @classmethod
    def of(cls, static: Buffers, size: int, pages: int) -> "StepLists":
        """Views for `size` sequences of at most `pages` pages."""
        numbers = cls.numbers(size, size * pages)
        every = static.view("lists", numbers)
        last, indices = _aligned(size + 1), _aligned(size + 1) + _aligned(size)
        return cls(every[: size + 1], every[last : last + size], every[indices:], every)

    @staticmethod
    def numbers(size: int, pages: int) -> int:
        """Elements for `size` sequences that have `pages` together."""
        return _aligned(size + 1) + _aligned(size) + pages

    def load(self, pages: PageLists, staging: Tensor) -> None:
        """`pages` by way of pinned memory, bytes that stay as they are until they are copied."""
        size, used = self.last.shape[0], pages.indices.shape[0]
        last, indices = _aligned(size + 1), _aligned(size + 1) + _aligned(size)
        host = staging[: 4 * (indices + used)].view(torch.int32)
        host[: size + 1], host[last : last + size], host[indices:] = pages.indptr, pages.last, pages.indices
        self.all[: indices + used].copy_(host, non_blocking=True)


def _aligned(count: int) -> int:
    return -(-count // 32) * 32


class FlashInferAttention:
    """The Backend on flashinfer 0.6, for models whose layers attend to everything. Prefill by `prefill` (fa2 or fa3),
    decode by its tensor-core kernel.
    """

    cache: KvCache
    plans_on_host = True

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
        self._plans: dict[int, StepPlan] = {}
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
        self._plans.clear()
        self._launches.forget()

    def reserve(self, rows: int, pages: int) -> Buffers:
        self._pages_of_one = pages
        numbers = StepLists.numbers(rows, rows * pages)
        self._static = Buffers(
            Slot("slots", rows, (), torch.int64, padding=SCRATCH_PAGE),
            Slot("lists", numbers, (), torch.int32, padding=None),
            device=self._device,
        )
        self._lists = PinnedRing(4 * numbers)
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
        self._static.load("slots", metadata.slots, size)
        self._slots = self._static.view("slots", size)
        if size not in self._steps:
            self._steps[size] = self._decode_planner(size)
        planner = self._planned = self._steps[size]
        pages = PageLists.of(metadata.tables, metadata.lengths, self.cache.page_size, size)
        if size not in self._plans:
            self._plans[size] = self._step_plan(planner, pages)
        with self._lists.lend() as staging:
            StepLists.of(self._static, size, self._pages_of_one).load(pages, staging)
        with self._ring.lend() as staging:
            planner._plan_info = self._plans[size].launch(staging, pages)
        self._launches.same(size, planner._plan_info)

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
            lists = StepLists.of(self._static, size, self._pages_of_one)
            fixed = {
                "use_cuda_graph": True,
                "paged_kv_indptr_buffer": lists.indptr,
                "paged_kv_indices_buffer": lists.indices,
                "paged_kv_last_page_len_buffer": lists.last,
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

    def _step_plan(self, planner: Any, pages: PageLists) -> StepPlan:
        """How steps of the planner's size are planned, as its own `plan` does it."""
        with self._ring.lend() as staging:
            return StepPlan.of(planner, staging, pages, lambda: self._plan_in(staging, planner, None, pages))

    def _plan(self, planner: Any, starts: Tensor | None, pages: PageLists, **options: Any) -> None:
        """Plans rows `starts` (None: one row each) over `pages`. The host does not wait for the device."""
        with self._ring.lend() as staging:
            self._plan_in(staging, planner, starts, pages, **options)

    def _plan_in(self, staging: Tensor, planner: Any, starts: Tensor | None, pages: PageLists, **options: Any) -> None:
        """The same, in this pinned memory."""
        # From the host, flashinfer would wait until the indices are copied.
        indices = pages.indices.to(self._device, non_blocking=True)
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
