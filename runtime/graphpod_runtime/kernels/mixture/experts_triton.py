"""Both products of a mixture of experts by Triton. Imported only where Triton is.

A program has some rows of one expert and some outputs. Where the rows of an expert end is on the device alone, so there
are as many programs as any routing could need, and those behind the last row end at once. A product reads its input by
the tokens of its rows: none is copied to a row of its own first.
"""

import triton
import triton.language as tl
from torch import Tensor

from graphpod_runtime.kernels.mixture.tiles import DOWN, WIDE, Tile, tile


@triton.jit
def _block(ends, number, experts, all_experts: tl.constexpr, rows: tl.constexpr):
    """Expert, first row and end of block `number` of `rows` rows of one expert each; an end of 0 behind the last."""
    expert = tl.arange(0, all_experts)
    inside = expert < experts
    upto = tl.load(ends + expert, inside, other=0)
    before = tl.load(ends + expert - 1, inside & (expert > 0), other=0)
    blocks = tl.where(inside, (upto - before + rows - 1) // rows, 0)
    after = tl.cumsum(blocks, 0)
    found = (after - blocks <= number) & (number < after)
    its = tl.sum(tl.where(found, expert, 0))
    first = tl.sum(tl.where(found, before + (number - after + blocks) * rows, 0))
    return its, first, tl.sum(tl.where(found, upto, 0))


@triton.jit
def _widen(
    x, weight, ends, tokens, out, x_stride, experts, hidden, width, all_experts: tl.constexpr, gelu: tl.constexpr,
    rows: tl.constexpr, outputs: tl.constexpr, inputs: tl.constexpr, whole: tl.constexpr,
):  # fmt: skip
    expert, first, end = _block(ends, tl.program_id(1), experts, all_experts, rows)
    if first >= end:
        return
    row = first + tl.arange(0, rows)
    there = row < end
    token = tl.load(tokens + row, there, other=0)
    at = tl.program_id(0) * outputs + tl.arange(0, outputs)
    element = out.dtype.element_ty
    gates = weight + expert.to(tl.int64) * 2 * width * hidden
    gate = tl.zeros((rows, outputs), tl.float32)
    up = tl.zeros((rows, outputs), tl.float32)
    for step in range(0, hidden, inputs):
        k = step + tl.arange(0, inputs)
        cells = at[None, :].to(tl.int64) * hidden + k[:, None]
        if whole:
            own = tl.load(x + token[:, None] * x_stride + k[None, :], there[:, None], other=0.0)
            gate = tl.dot(own, tl.load(gates + cells), gate)
            up = tl.dot(own, tl.load(gates + width * hidden + cells), up)
        else:
            inside = k < hidden
            cell = (at < width)[None, :] & inside[:, None]
            own = tl.load(x + token[:, None] * x_stride + k[None, :], there[:, None] & inside[None, :], other=0.0)
            gate = tl.dot(own, tl.load(gates + cells, cell, other=0.0), gate)
            up = tl.dot(own, tl.load(gates + width * hidden + cells, cell, other=0.0), up)
    # Rounded where torch rounds: the product, the activation and their product are three operators there.
    gate, up = gate.to(element).to(tl.float32), up.to(element).to(tl.float32)
    if gelu:
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        gate = gate * tl.sigmoid(2 * inner)
    else:
        gate = gate * tl.sigmoid(gate)
    made = gate.to(element).to(tl.float32) * up
    place = out + row[:, None].to(tl.int64) * width + at[None, :]
    tl.store(place, made.to(element), there[:, None] & (at < width)[None, :])


@triton.jit
def _narrow(
    x, weight, ends, out, experts, hidden, width, all_experts: tl.constexpr,
    rows: tl.constexpr, outputs: tl.constexpr, inputs: tl.constexpr, whole: tl.constexpr,
):  # fmt: skip
    expert, first, end = _block(ends, tl.program_id(1), experts, all_experts, rows)
    if first >= end:
        return
    row = first + tl.arange(0, rows)
    there = row < end
    at = tl.program_id(0) * outputs + tl.arange(0, outputs)
    matrix = weight + expert.to(tl.int64) * hidden * width
    made = tl.zeros((rows, outputs), tl.float32)
    for step in range(0, width, inputs):
        k = step + tl.arange(0, inputs)
        cells = at[None, :].to(tl.int64) * width + k[:, None]
        if whole:
            own = tl.load(x + row[:, None].to(tl.int64) * width + k[None, :], there[:, None], other=0.0)
            made = tl.dot(own, tl.load(matrix + cells), made)
        else:
            inside = k < width
            own = tl.load(
                x + row[:, None].to(tl.int64) * width + k[None, :], there[:, None] & inside[None, :], other=0.0
            )
            made = tl.dot(own, tl.load(matrix + cells, (at < hidden)[None, :] & inside[:, None], other=0.0), made)
    place = out + row[:, None].to(tl.int64) * hidden + at[None, :]
    tl.store(place, made.to(out.dtype.element_ty), there[:, None] & (at < hidden)[None, :])


def rows_into(
    x: Tensor, gate_up: Tensor, down: Tensor, tokens: Tensor, ends: Tensor, gelu: bool, shared_memory: int,
    made: Tensor, out: Tensor,
) -> Tensor:  # fmt: skip
    """What the expert of each row makes of its token, into `out` [rows, hidden] by way of `made` [rows, width].

    x [tokens, hidden] has contiguous rows; gate_up [experts, 2 · width, hidden], gate above up, down [experts, hidden,
    width] and the places are contiguous, all of one 16-bit type. `tokens` [rows] and `ends` [experts] are those of
    `Routes`; `shared_memory` is what a program may have, in bytes.
    """
    (experts, hidden, width), pairs = down.shape, tokens.shape[0]
    all_experts = triton.next_power_of_2(experts)
    wide, narrow = (tile(tiles, pairs, experts, shared_memory) for tiles in (WIDE, DOWN))

    def grid(each: Tile, outputs: int) -> tuple[int, int]:
        return triton.cdiv(outputs, each.outputs), pairs // each.rows + min(experts, pairs)

    _widen[grid(wide, width)](
        x, gate_up, ends, tokens, made, x.stride(0), experts, hidden, width, all_experts, gelu,
        wide.rows, wide.outputs, wide.inputs, width % wide.outputs == 0 and hidden % wide.inputs == 0,
        num_warps=wide.warps, num_stages=wide.stages,
    )  # fmt: skip
    _narrow[grid(narrow, hidden)](
        made, down, ends, out, experts, hidden, width, all_experts,
        narrow.rows, narrow.outputs, narrow.inputs, hidden % narrow.outputs == 0 and width % narrow.inputs == 0,
        num_warps=narrow.warps, num_stages=narrow.stages,
    )  # fmt: skip
    return out
