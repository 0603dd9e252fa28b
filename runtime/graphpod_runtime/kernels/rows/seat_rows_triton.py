"""SeatRows by Triton, one launch each. Imported only where Triton is.

No kernel is specialised by the number of rows, so nothing is compiled while requests wait.
"""

import triton
import triton.language as tl
from torch import Tensor

from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.kernels.rows.seat_rows_contract import LENGTH, PAGES, TOKEN, StepRows
from graphpod_runtime.kernels.triton_launch import Launches

BLOCK, TABLE_BLOCK = 64, 512
TOKEN_AT, LENGTH_AT, PAGES_AT = tl.constexpr(TOKEN), tl.constexpr(LENGTH), tl.constexpr(PAGES)
SCRATCH = tl.constexpr(SCRATCH_PAGE)


@triton.jit(do_not_specialize=["count"], do_not_specialize_on_alignment=["seats"])
def _read(
    state, seats, tokens, positions, slots, lengths, tables, count, width, pages, page_size,
    whole: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    live = row < count
    own = state + tl.load(seats + row, live, other=0) * width
    length = tl.load(own + LENGTH_AT, live, other=1)
    position = length - 1
    page = tl.load(own + PAGES_AT + position // page_size, live, other=SCRATCH)
    tl.store(tokens + row, tl.load(own + TOKEN_AT, live, other=0))
    tl.store(positions + row, position)
    tl.store(slots + row, page * page_size + position % page_size)
    tl.store(lengths + row, length)
    used = pages
    if not whole:
        used = tl.cdiv(length, page_size).to(tl.int32)
    for first in range(0, used, block):
        at = first + tl.arange(0, block)
        own_pages = tl.load(own + PAGES_AT + at, live & (at < pages), other=SCRATCH)
        tl.store(tables + row * pages + at, own_pages, at < pages)


@triton.jit(do_not_specialize=["count"], do_not_specialize_on_alignment=["seats", "tokens"])
def _keep(state, seats, tokens, count, width, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    live = at < count
    own = state + tl.load(seats + at, live, other=0) * width
    tl.store(own + TOKEN_AT, tl.maximum(tl.load(tokens + at, live, other=0), 0), live)
    tl.store(own + LENGTH_AT, tl.load(own + LENGTH_AT, live, other=0) + 1, live)


class TritonSeatRows:
    """Reads by one program a row, keeps by one for 64 rows. For one engine a kernel is always of the same kind: what it
    is specialised by are the addresses and sizes of its state and its static buffers.
    """

    def __init__(self) -> None:
        self._launch = Launches()

    def read(self, state: Tensor, seats: Tensor, page_size: int, into: StepRows, *, whole: bool) -> None:
        rows, pages = into.tables.shape
        arguments = (state, seats, *into, seats.shape[0], state.shape[1], pages, page_size, whole, TABLE_BLOCK)
        self._launch(_read, (rows, 1, 1), arguments)

    def keep(self, state: Tensor, seats: Tensor, tokens: Tensor) -> None:
        count = seats.shape[0]
        arguments = (state, seats, tokens, count, state.shape[1], BLOCK)
        self._launch(_keep, (triton.cdiv(count, BLOCK), 1, 1), arguments)
