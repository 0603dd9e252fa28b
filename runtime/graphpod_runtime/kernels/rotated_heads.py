"""Norm and rotation of the heads of a layer, and each to its place, in one launch.

The compiler makes two kernels of it, and one of them reduces a head at a time: on an H200 they take 10 µs for 512 rows
of 32 heads, which are read and written in 3. Imported only where Triton is.
"""

import triton
import triton.language as tl
from torch import Tensor

EACH = 8
"""Heads of a row that a program has."""


@triton.jit
def _half(heads, at, there, weight_q, weight_k, d, is_q, normed: tl.constexpr):
    """One half of some heads, and what it is multiplied by."""
    x = tl.load(heads + at, there, other=0.0).to(tl.float32)
    weight = x
    if normed:
        of_q, of_k = tl.load(weight_q + d).to(tl.float32), tl.load(weight_k + d).to(tl.float32)
        weight = tl.where(is_q, of_q[None, :], of_k[None, :])
    return x, weight


@triton.jit
def _rotate(
    heads, cosines, sines, weight_q, weight_k, q, k, v, eps, row_stride, table_stride,
    q_heads: tl.constexpr, kv_heads: tl.constexpr, width: tl.constexpr, normed: tl.constexpr, each: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * each + tl.arange(0, each)[:, None]
    half: tl.constexpr = width // 2
    d = tl.arange(0, half)
    there = head < q_heads + 2 * kv_heads
    is_q, is_v = head < q_heads, head >= q_heads + kv_heads
    element = q.dtype.element_ty
    at = row * row_stride + head * width + d[None, :]
    low, low_weight = _half(heads, at, there, weight_q, weight_k, d, is_q, normed)
    high, high_weight = _half(heads, at + half, there, weight_q, weight_k, d + half, is_q, normed)
    low_normed, high_normed = low, high
    if normed:
        # Rounded where torch rounds: norm, product and sum are three operators there.
        scale = tl.rsqrt((tl.sum(low * low, 1) + tl.sum(high * high, 1)) / width + eps)[:, None]
        low_normed = (low * scale * low_weight).to(element).to(tl.float32)
        high_normed = (high * scale * high_weight).to(element).to(tl.float32)
    table = row * table_stride + d
    cos_low, cos_high = tl.load(cosines + table).to(tl.float32), tl.load(cosines + table + half).to(tl.float32)
    sin_low, sin_high = tl.load(sines + table).to(tl.float32), tl.load(sines + table + half).to(tl.float32)
    first = (low_normed * cos_low[None, :]).to(element).to(tl.float32) + high_normed * sin_low[None, :]
    second = (high_normed * cos_high[None, :]).to(element).to(tl.float32) + low_normed * sin_high[None, :]
    first, second = tl.where(is_v, low, first).to(element), tl.where(is_v, high, second).to(element)
    to_q = q + (row * q_heads + head) * width + d[None, :]
    to_k = k + (row * kv_heads + head - q_heads) * width + d[None, :]
    to_v = v + (row * kv_heads + head - q_heads - kv_heads) * width + d[None, :]
    is_k = there & (is_q == 0) & (is_v == 0)
    tl.store(to_q, first, is_q)
    tl.store(to_q + half, second, is_q)
    tl.store(to_k, first, is_k)
    tl.store(to_k + half, second, is_k)
    tl.store(to_v, first, is_v & there)
    tl.store(to_v + half, second, is_v & there)


def rotate_into(
    heads: Tensor,
    cosines: Tensor,
    sines: Tensor,
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    into: tuple[Tensor, Tensor, Tensor],
) -> None:
    """q, k and v of heads [rows, heads + 2 · kv_heads, d] to contiguous places [rows, heads or kv_heads, d]: q and k
    normalised by `norms` where there are, then rotated by tables [rows, 1, d]; v as it is. All of one 16-bit or 32-bit
    type but the norms; a row of `heads` is contiguous, the tables are alike, and d is a power of two.
    """
    q, k, v = into
    (rows, q_heads, width), kv_heads = q.shape, k.shape[1]
    weights = norms or (heads, heads)
    _rotate[(rows, triton.cdiv(q_heads + 2 * kv_heads, EACH))](
        heads, cosines, sines, *weights, q, k, v, eps, heads.stride(0), cosines.stride(0),
        q_heads, kv_heads, width, norms is not None, EACH, num_warps=4,
    )  # fmt: skip
