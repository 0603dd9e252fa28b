"""Decode attention on a GPU by our own kernel, which reads page tables and lengths on the device: nothing is planned on
the host, and a step's launch is the same for every batch."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from graphpod_policy.attention import FEW_ROWS
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.kernels.paged_decode_triton import Rows, Scratch, Step
from graphpod_runtime.kernels.rows.row_copies import rows_for


class PagedDecode:
    """Attention of passes whose rows each have their own pages and length, for any model; a part of a backend."""

    def __init__(
        self,
        shape: ModelShape,
        dtype: torch.dtype,
        device: torch.device,
        *,
        shared: bool = False,
        trees: bool = False,
    ) -> None:
        """`shared`: rows may be of one sequence, each of which attends to those before it; `trees`: but for those that
        `Inputs.hidden` names."""
        self._shape, self._dtype, self._device, self._shared = shape, dtype, device, shared
        self._names = ("slots", "tables", "lengths", *(("hidden",) if trees else ()))
        self._scratch = self._scratch_of(0)

    def bind(self, cache: KvCache) -> None:
        """As AttentionBackend.bind."""
        self._layers = [
            (keys, values, scale, self._shape.window(layer))
            for layer, (keys, values, scale) in enumerate(zip(cache.keys, cache.values, cache.scales, strict=True))
        ]

    def reserve(self, rows: int, pages: int) -> Iterable[tuple[str, Tensor]]:
        """As AttentionBackend.reserve; compiles the kernels of both row counts."""
        self._static = Buffers(
            Slot("slots", rows, (), torch.int64, padding=SCRATCH_PAGE),
            Slot("tables", rows, (pages,), torch.int64, padding=SCRATCH_PAGE),
            # One token of the scratch page: attention over nothing would be NaN.
            Slot("lengths", rows, (), torch.int64, padding=1),
            *(Slot(name, rows, (), torch.int64) for name in self._names[3:]),
            device=self._device,
        )
        self._scratch = self._scratch_of(rows)
        for count in (1, FEW_ROWS + 1):
            self._compile(count)
        return *self._static, *zip(("sums", "extremes", "ended"), self._scratch, strict=True)

    def plan(self, inputs: Inputs) -> None:
        """The next rows are those of `inputs`, uncaptured."""
        parts = self._parts(inputs, torch.zeros_like(inputs.slots))
        self._rows = Rows(*(part.to(self._device, non_blocking=True).contiguous() for part in parts))

    def plan_step(self, inputs: Inputs, size: int) -> None:
        """As AttentionBackend.plan_step."""
        static = self._static
        for name, live in zip(self._names, self._parts(inputs, inputs.slots[:0]), strict=True):
            static.load(name, live, size)
        self._rows = Rows(*(static.view(name, size) for name in self._names))

    def _parts(self, inputs: Inputs, nothing: Tensor) -> tuple[Tensor, ...]:
        """What `inputs` have by those names; `nothing`: where rows see all."""
        parts = (inputs.slots, inputs.tables, inputs.lengths, nothing if inputs.hidden is None else inputs.hidden)
        return parts[: len(self._names)]

    def over(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        """As AttentionBackend.over, of rows that were planned."""
        count = q.shape[0]
        scratch = self._scratch if count <= self._scratch.ended.shape[0] else self._scratch_of(count)
        step = Step(q, k, v, out, self._rows, scratch, self._layers[0][0].dtype)
        # Programs of a launch do not see what the others of it write.
        write = rows_for(self._device).writer(k, v, self._rows.slots) if self._shared else None

        def run(layer: int) -> Tensor:
            keys, values, scale, window = self._layers[layer]
            if write is not None:
                write(keys.flatten(0, 1), values.flatten(0, 1), scale)
            step.run(keys, values, scale, self._shape.softmax_scale, window)
            return out

        return run

    def _scratch_of(self, rows: int) -> Scratch:
        shape = self._shape
        return Scratch.of(rows, shape.heads, shape.kv_heads, shape.head_dim, self._device)

    def _compile(self, count: int) -> None:
        """The kernel of `count` rows, on the scratch page: a capture cannot compile, and no request is to wait."""
        shape = self._shape
        heads = torch.zeros(
            count, shape.heads + 2 * shape.kv_heads, shape.head_dim, dtype=self._dtype, device=self._device
        )
        q, k, v = heads.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=1)
        slots = torch.full((count,), SCRATCH_PAGE)
        parts = (slots, slots[:, None], torch.ones_like(slots), torch.zeros_like(slots))
        self._rows = Rows(*(part.to(self._device) for part in parts[: len(self._names)]))
        self.over(q, k, v, q.new_empty(count, shape.heads * shape.head_dim))(0)
