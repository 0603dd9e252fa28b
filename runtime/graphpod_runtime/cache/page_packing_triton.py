"""PagePacking by Triton, in one launch each. Imported only where Triton is.

It shares the device with passes that decode, and holds processors that they want. So it is one kernel, and each of
its programs is short: a page of one half of a layer.
"""

import triton
import triton.language as tl
from torch import Tensor

BLOCK_BYTES = 8192
"""That a program has on their way at once: 64 bytes of each of its threads."""


@triton.jit
def _copy(source, target, width: tl.constexpr, block: tl.constexpr):
    for first in range(0, width, block):
        at = first + tl.arange(0, block)
        inside = at < width
        tl.store(target + at, tl.load(source + at, inside), inside)


@triton.jit
def _move(
    keys, values, packed, pages, cache_pages, layers: tl.constexpr, halves: tl.constexpr, width: tl.constexpr,
    block: tl.constexpr, gathers: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    layer, page = at // halves % layers, tl.load(pages + at // (halves * layers))
    row, place = (layer * cache_pages + page) * width, packed + at * width
    if at % halves == 0:
        if gathers:
            _copy(keys + row, place, width, block)
        else:
            _copy(place, keys + row, width, block)
    else:
        if gathers:
            _copy(values + row, place, width, block)
        else:
            _copy(place, values + row, width, block)


class TritonPacking:
    """Is PagePacking."""

    def gather(self, halves: tuple[Tensor, ...], pages: Tensor, packed: Tensor) -> None:
        _launch(halves, pages, packed, gathers=True)

    def scatter(self, packed: Tensor, pages: Tensor, halves: tuple[Tensor, ...]) -> None:
        _launch(halves, pages, packed, gathers=False)


def _launch(halves: tuple[Tensor, ...], pages: Tensor, packed: Tensor, *, gathers: bool) -> None:
    count, layers, parts, width = packed.shape
    block = min(triton.next_power_of_2(width), BLOCK_BYTES // packed.element_size())
    _move[(count * layers * parts,)](
        halves[0], halves[-1], packed, pages, halves[0].shape[1], layers, parts, width, block, gathers
    )
