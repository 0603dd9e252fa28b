"""RowKernels by Triton. Imported only where Triton is."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphpod_runtime.base.shapes import KvScale
from graphpod_runtime.cache.cells import quantises
from graphpod_runtime.kernels.rows.row_copy_contract import Write

LARGEST = tl.constexpr(448.0)
"""That e4m3 holds."""


@triton.jit
def _copy(source, target, width: tl.constexpr, block: tl.constexpr):
    at = tl.arange(0, block)
    inside = at < width
    tl.store(target + at, tl.load(source + at, inside), inside)


@triton.jit
def _stage(
    q, k, v, q_to, k_to, v_to, q_stride, k_stride, v_stride,
    q_width: tl.constexpr, kv_width: tl.constexpr, q_block: tl.constexpr, kv_block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    _copy(q + row * q_stride, q_to + row * q_width, q_width, q_block)
    _copy(k + row * k_stride, k_to + row * kv_width, kv_width, kv_block)
    _copy(v + row * v_stride, v_to + row * kv_width, kv_width, kv_block)


@triton.jit
def held(x, inverse, element: tl.constexpr):
    """`x` as a cache of the FP8 type `element` holds it."""
    return tl.clamp(x.to(tl.float32) * inverse, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL).to(element)


@triton.jit
def _quantise(source, target, inverse, width: tl.constexpr, block: tl.constexpr):
    at = tl.arange(0, block)
    inside = at < width
    tl.store(target + at, held(tl.load(source + at, inside, other=0.0), inverse, target.dtype.element_ty), inside)


@triton.jit
def _write(
    k, v, keys, values, slots, key_inverse, value_inverse, k_stride, v_stride,
    width: tl.constexpr, block: tl.constexpr, quantised: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    if quantised:
        _quantise(k + row * k_stride, keys + slot * width, key_inverse, width, block)
        _quantise(v + row * v_stride, values + slot * width, value_inverse, width, block)
    else:
        _copy(k + row * k_stride, keys + slot * width, width, block)
        _copy(v + row * v_stride, values + slot * width, width, block)


@triton.jit
def _stage_and_write(
    q, k, v, q_to, k_to, v_to, bases, slots, key_inverse, value_inverse, q_stride, k_stride, v_stride,
    q_width: tl.constexpr, width: tl.constexpr, q_block: tl.constexpr, block: tl.constexpr, element: tl.constexpr,
    quantised: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    _copy(q + row * q_stride, q_to + row * q_width, q_width, q_block)
    _copy(k + row * k_stride, k_to + row * width, width, block)
    _copy(v + row * v_stride, v_to + row * width, width, block)
    slot = tl.load(slots + row)
    if slot >= 0:
        # Allocations begin at multiples of 512 bytes, and a layer is whole pages.
        keys = tl.multiple_of(tl.load(bases), 16).to(tl.pointer_type(element))
        values = tl.multiple_of(tl.load(bases + 1), 16).to(tl.pointer_type(element))
        if quantised:
            _quantise(k + row * k_stride, keys + slot * width, key_inverse, width, block)
            _quantise(v + row * v_stride, values + slot * width, value_inverse, width, block)
        else:
            _copy(k + row * k_stride, keys + slot * width, width, block)
            _copy(v + row * v_stride, values + slot * width, width, block)


ELEMENTS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float8_e4m3fn: tl.float8e4nv}
"""Of caches."""


def stage_and_write(
    sources: tuple[Tensor, ...],
    places: tuple[Tensor, ...],
    bases: Tensor,
    element: torch.dtype,
    slots: Tensor,
    scale: KvScale,
) -> None:
    """q, k and v [rows, heads, d] to their contiguous places, k and v to the cache as well: row i to slots[i], where
    that is not negative. `bases` are the addresses on the device of keys and values of one layer, of type `element`.
    """
    q, k, v = (source.flatten(1) for source in sources)
    q_width, width = q.shape[1], k.shape[1]
    _stage_and_write[(q.shape[0],)](
        q, k, v, *places, bases, slots, 1.0 / scale.key, 1.0 / scale.value, q.stride(0), k.stride(0), v.stride(0),
        q_width, width, triton.next_power_of_2(q_width), triton.next_power_of_2(width), ELEMENTS[element],
        quantises(element),
    )  # fmt: skip


class TritonRows:
    """One program for each row, which reads it as one stretch."""

    def stage(self, sources: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> None:
        # Views where the heads of a row lie together; a copy otherwise.
        q, k, v = (source.flatten(1) for source in sources)
        q_width, kv_width = q.shape[1], k.shape[1]
        _stage[(q.shape[0],)](
            q, k, v, *targets, q.stride(0), k.stride(0), v.stride(0),
            q_width, kv_width, triton.next_power_of_2(q_width), triton.next_power_of_2(kv_width),
        )  # fmt: skip

    def writer(self, k: Tensor, v: Tensor, slots: Tensor) -> Write:
        k, v = k.flatten(1), v.flatten(1)
        width = k.shape[1]
        sizes = (k.stride(0), v.stride(0), width, triton.next_power_of_2(width))
        grid, stream = (k.shape[0], 1, 1), torch.cuda.current_stream(k.device).cuda_stream
        addresses = k.data_ptr(), v.data_ptr(), slots.data_ptr()
        launch: Any = None

        def write(keys: Tensor, values: Tensor, scale: KvScale) -> None:
            nonlocal launch
            more = (1.0 / scale.key, 1.0 / scale.value, *sizes, quantises(keys.dtype))
            if launch is None:
                # Choosing the compiled kernel takes longer than launching it, and the choice is the same for all.
                launch = _write[grid](k, v, keys, values, slots, *more)[grid]
            else:
                # By addresses: of tensors, Triton asks the driver for each.
                rows_k, rows_v, at = addresses
                launch(rows_k, rows_v, keys.data_ptr(), values.data_ptr(), at, *more, stream=stream)

        return write
