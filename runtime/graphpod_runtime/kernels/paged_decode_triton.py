"""Decode attention by Triton: one launch a layer writes each row's key and value, then attends over its pages. Imported
only where Triton is.

One program has one key head of one row, with all query heads that share it, and a part of the row's context. Where a
row has several parts, the program that ends last adds them up, in their order. The parts depend on the row's own length
and on whether the launch has few rows or many.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphpod_policy.attention import DECODE_PARTS, FEW_PARTS, FEW_ROWS, most_parts
from graphpod_runtime.base.shapes import KvScale
from graphpod_runtime.cache.cells import quantises
from graphpod_runtime.kernels.rows.row_copies_triton import held
from graphpod_runtime.kernels.tree_attention import HIDEABLE

LOG2_E = 1.4426950408889634
LEAST_GROUP = 16
"""Rows, columns and depth of the smallest matrix product."""


class Tile(NamedTuple):
    """How programs work: tokens of one step, tokens of the smallest part, warps, loads ahead, and parts at most."""

    block: int
    least: int
    warps: int
    stages: int
    parts: int


FEW = Tile(128, 128, 4, 2, FEW_PARTS)
MANY, MANY_FP8 = Tile(64, 256, 2, 3, DECODE_PARTS), Tile(64, 256, 1, 2, DECODE_PARTS)
"""For a few rows, where the time is a chain of latencies, and for many, which fill the device. FP8 is half the bytes to
wait for and more to compute: programs of one warp leave room for others (one H200, 2026-11-26, 32 rows of 8192 tokens:
167 µs a layer, of two warps 203; in 16 bits 269)."""
MIDDLE = 256
"""Tokens of a part from which on a few rows have more parts than many: one row of 32 768 tokens takes 46 µs a layer by
32 of them, 55 by 16; one of 4096 takes 16 by 32, 13 by 16 (one H200, 2026-11-26)."""
LARGEST_QUERY = 1024.0
"""Queries beyond it are scaled for products in float16, which ends at 65 504."""
OTHER_SHARED = 16 << 10
"""Bytes of shared memory besides the keys and values of a step."""


def tile_of(rows: int, token_bytes: int, shared: int, *, quantised: bool = False) -> Tile:
    """For `rows` rows of keys of `token_bytes` each, as they are multiplied, where a program can have `shared` bytes of
    shared memory. Pages are found while they are read, so Triton keeps one step's keys and values there, whatever
    `stages` says."""
    many = MANY_FP8 if quantised else MANY
    tile = FEW if rows <= FEW_ROWS else many
    block = tile.block
    while 2 * block * token_bytes + OTHER_SHARED > shared and block > LEAST_GROUP:
        block //= 2
    return tile._replace(block=block)


@triton.jit
def _over(
    query, keys, values, table, begin, end, last, unseen, head, kv_heads, scale, best, total, sums, at_d,
    page_size: tl.constexpr, width: tl.constexpr, block: tl.constexpr, trees: tl.constexpr, hideable: tl.constexpr,
):  # fmt: skip
    """Attention over tokens [begin, end) of the cache on top of (largest score, mass, weighted values) so far. Keys and
    values are multiplied in the type of `query`; `scale` is a number or one a query head. With `trees`, bit n of
    `unseen` hides the n-th token in front of the `last` one, up to `hideable`."""
    wide = at_d < width
    for first in range(begin, end, block):
        position = first + tl.arange(0, block)
        inside = position < end
        if trees:
            behind = last - position
            hides = (unseen >> tl.minimum(tl.maximum(behind, 0), hideable - 1).to(tl.int64)) & 1
            inside = inside & ((hides == 0) | (behind >= hideable))
        page = tl.load(table + position // page_size, inside, other=0)
        cell = ((page * page_size + position % page_size) * kv_heads + head) * width
        key = tl.load(keys + cell[None, :] + at_d[:, None], inside[None, :] & wide[:, None], other=0.0)
        value = tl.load(values + cell[:, None] + at_d[None, :], inside[:, None] & wide[None, :], other=0.0)
        scores = tl.dot(query, key.to(query.dtype), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        peak = tl.maximum(best, tl.max(scores, 1))
        # All that a step has seen so far may be hidden.
        level = tl.where(peak == float("-inf"), 0.0, peak) if trees else peak
        shares = tl.exp2(scores - level[:, None])
        fade = tl.exp2(best - level)
        total = total * fade + tl.sum(shares, 1)
        sums = tl.dot(shares.to(query.dtype), value.to(query.dtype), sums * fade[:, None], input_precision="ieee")
        best = peak
    return best, total, sums


@triton.jit
def _own(source, cells, inverse, wide, at_d, quantised: tl.constexpr):
    """The row's own key or value, as the cache holds it from now on."""
    row = tl.load(source + at_d, wide, other=0.0)
    if quantised:
        row = held(row, inverse, cells.dtype.element_ty)
    tl.store(cells + at_d, row, wide)
    return row


@triton.jit(
    do_not_specialize=["table_stride", "window"],
    do_not_specialize_on_alignment=["slots", "tables", "lengths", "hidden"],
)
def _attend(
    q, k, v, keys, values, slots, tables, lengths, hidden, out, sums_of, extremes_of, ended,
    scale, value_scale, key_inverse, value_inverse, q_stride, k_stride, v_stride, table_stride, kv_heads, window,
    page_size: tl.constexpr, group: tl.constexpr, group_block: tl.constexpr, width: tl.constexpr,
    width_block: tl.constexpr, quantised: tl.constexpr, parts: tl.constexpr, least: tl.constexpr, block: tl.constexpr,
    even: tl.constexpr, middle: tl.constexpr, largest_query: tl.constexpr, trees: tl.constexpr, hideable: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(0) // kv_heads).to(tl.int64), tl.program_id(0) % kv_heads
    part = tl.program_id(1)
    length = tl.load(lengths + row).to(tl.int32)
    unseen = tl.full((), 0, tl.int64)
    if trees:
        unseen = tl.load(hidden + row)
        # A window counts what the row sees. It ends among the nodes where the row sees more of them than it has tokens.
        nearest = tl.arange(0, 64).to(tl.int64)
        reach = window + tl.sum((unseen >> nearest) & 1).to(tl.int32)
        if window < 64:
            shown = ((unseen >> nearest[None, :]) & 1) == 0
            upto = tl.sum((shown & (nearest[None, :] <= nearest[:, None])).to(tl.int32), 1)
            within = tl.sum((upto <= window).to(tl.int32))
            reach = tl.where(within < 64, within, reach)
        window = reach
    first = tl.maximum(0, length - window)
    size = tl.maximum(tl.cdiv(length - first, parts), tl.minimum(tl.cdiv(length - first, even), middle))
    size = tl.maximum(least, tl.cdiv(size, block) * block)
    count = tl.cdiv(length - first, size)
    if part < count:
        at_g, at_d = tl.arange(0, group_block), tl.arange(0, width_block)
        wide = at_d < width
        mine = (at_g < group)[:, None] & wide[None, :]
        heads = (head * group + at_g)[:, None] * width + at_d[None, :]
        query = tl.load(q + row * q_stride + heads, mine, other=0.0)
        best = tl.full((group_block,), float("-inf"), tl.float32)
        total = tl.zeros((group_block,), tl.float32)
        sums = tl.zeros((group_block, width_block), tl.float32)
        begin = first + part * size
        end = tl.minimum(begin + size, length)
        factor, scales = query, tl.full((group_block, 1), scale, tl.float32)
        if quantised and query.dtype != tl.float32:
            # From e4m3 to float16 is one instruction, to bfloat16 several. A power of two changes no digit.
            largest = tl.max(tl.abs(query.to(tl.float32)), 1)
            shrink = tl.exp2(tl.minimum(0.0, tl.floor(tl.log2(largest_query / largest))))[:, None]
            factor, scales = (query.to(tl.float32) * shrink).to(tl.float16), scales / shrink
        best, total, sums = _over(
            factor, keys, values, tables + row * table_stride, begin, tl.minimum(end, length - 1), length - 1, unseen,
            head, kv_heads, scales, best, total, sums, at_d, page_size, width, block, trees, hideable,
        )  # fmt: skip
        if end == length:
            cell = (tl.load(slots + row) * kv_heads + head) * width
            key = _own(k + row * k_stride + head * width, keys + cell, key_inverse, wide, at_d, quantised)
            value = _own(v + row * v_stride + head * width, values + cell, value_inverse, wide, at_d, quantised)
            score = tl.sum(query.to(tl.float32) * key.to(tl.float32)[None, :], 1) * scale
            peak = tl.maximum(best, score)
            share, fade = tl.exp2(score - peak), tl.exp2(best - peak)
            total = total * fade + share
            sums = sums * fade[:, None] + share[:, None] * value.to(tl.float32)[None, :]
            best = peak
        place = out + row * (kv_heads * group * width) + heads
        if count == 1:
            tl.store(place, (sums / total[:, None] * value_scale).to(query.dtype), mine)
        else:
            base = tl.program_id(0) * parts
            own = (base + part) * group + at_g
            tl.store(sums_of + own[:, None] * width + at_d[None, :], sums, mine)
            tl.store(extremes_of + own * 2, best, at_g < group)
            tl.store(extremes_of + own * 2 + 1, total, at_g < group)
            tl.debug_barrier()  # all of it is written before one thread says so
            if tl.atomic_add(ended + tl.program_id(0), 1, sem="acq_rel") == count - 1:
                best = tl.full((group_block,), float("-inf"), tl.float32)
                total = tl.zeros((group_block,), tl.float32)
                sums = tl.zeros((group_block, width_block), tl.float32)
                for other in range(count):
                    theirs = (base + other) * group + at_g
                    most = tl.load(extremes_of + theirs * 2, at_g < group, other=0.0, cache_modifier=".cg")
                    mass = tl.load(extremes_of + theirs * 2 + 1, at_g < group, other=1.0, cache_modifier=".cg")
                    cells = sums_of + theirs[:, None] * width + at_d[None, :]
                    weighted = tl.load(cells, mine, other=0.0, cache_modifier=".cg")
                    peak = tl.maximum(best, most)
                    fade, rise = tl.exp2(best - peak), tl.exp2(most - peak)
                    total = total * fade + mass * rise
                    sums = sums * fade[:, None] + weighted * rise[:, None]
                    best = peak
                tl.store(place, (sums / total[:, None] * value_scale).to(query.dtype), mine)
                tl.store(ended + tl.program_id(0), 0)


class Scratch(NamedTuple):
    """What the parts of a launch leave for the one that adds them up; layers use it one after the other."""

    sums: Tensor
    """float32 [rows, kv_heads, parts, group, width], of the parts that a launch has."""
    extremes: Tensor
    """float32 [rows, kv_heads, parts, group, 2]: largest score and mass."""
    ended: Tensor
    """int32 [rows, kv_heads]: parts that have ended; 0 between launches."""

    @classmethod
    def of(cls, rows: int, heads: int, kv_heads: int, width: int, device: torch.device) -> "Scratch":
        """For up to `rows` rows."""
        sums = most_parts(rows) * heads
        return cls(
            torch.empty(sums * width, device=device),
            torch.empty(sums * 2, device=device),
            torch.zeros(rows, kv_heads, dtype=torch.int32, device=device),
        )


class Rows(NamedTuple):
    """Where the rows of a step live, on the device: `slots` [rows] of their own keys and values, `tables`
    [rows, pages] and `lengths` [rows], all int64; row i attends to its first lengths[i] tokens, the last of which is
    itself, but for those `hidden` [rows], as Inputs has them. None: every row sees all.
    """

    slots: Tensor
    tables: Tensor
    lengths: Tensor
    hidden: Tensor | None = None


@cache
def _shared(device: torch.device) -> int:
    """Bytes of shared memory that one program can have."""
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


class Step:
    """Decode attention of one pass, whose layers share everything but their cache."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, rows: Rows, scratch: Scratch, cells: torch.dtype
    ) -> None:
        """q [rows, heads, d], k and v [rows, kv_heads, d], whose heads lie together; out [rows, heads · d]; the cache
        is of `cells`.
        """
        count, heads, width = q.shape
        if rows.lengths.shape[0] != count:
            raise ValueError(f"{count} rows attend, {rows.lengths.shape[0]} were planned")
        kv_heads = k.shape[1]
        q, k, v = q.flatten(1), k.flatten(1), v.flatten(1)
        group, group_block = heads // kv_heads, max(LEAST_GROUP, triton.next_power_of_2(heads // kv_heads))
        width_block = max(LEAST_GROUP, triton.next_power_of_2(width))
        quantised = quantises(cells)
        tile = tile_of(count, width_block * q.element_size(), _shared(q.device), quantised=quantised)
        self._grid = (count * kv_heads, tile.parts, 1)
        # Without trees nothing is read there.
        hidden = rows.lengths if rows.hidden is None else rows.hidden
        self._rows = (q, k, v), (rows.slots, rows.tables, rows.lengths, hidden, out, *scratch)
        self._strides = q.stride(0), k.stride(0), v.stride(0), rows.tables.stride(0), kv_heads
        self._shape = group, group_block, width, width_block, quantised
        self._tile = tile.parts, tile.least, tile.block, DECODE_PARTS, MIDDLE, LARGEST_QUERY
        self._trees = rows.hidden is not None, HIDEABLE
        self._options = {"num_warps": tile.warps, "num_stages": tile.stages}
        self._launch: Any = None

    def run(self, keys: Tensor, values: Tensor, scale: KvScale, softmax: float, window: int | None) -> None:
        """One layer over its cache [pages, page_size, kv_heads, d], which gets the rows' keys and values. `softmax` is
        the scale of query · key."""
        arguments = (
            *self._rows[0], keys, values, *self._rows[1],
            softmax * scale.key * LOG2_E, scale.value, 1.0 / scale.key, 1.0 / scale.value,
            *self._strides, window or 2**30, keys.shape[1], *self._shape, *self._tile, *self._trees,
        )  # fmt: skip
        if self._launch is None:
            # Choosing the compiled kernel takes longer than launching it, and the choice is the same for all layers.
            self._launch = _attend[self._grid](*arguments, **self._options)[self._grid]
        else:
            self._launch(*arguments)
