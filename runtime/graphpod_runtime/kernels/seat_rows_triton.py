"""SeatRows by Triton, one launch each. Imported only where Triton is.

No kernel is specialised by the number of rows, so nothing is compiled while requests wait.
"""

import triton
import triton.language as tl
from torch import Tensor

from graphpod_runtime.kernels.seat_kernels import LENGTH, PAGES, TOKEN, StepRows

BLOCK = 64
TOKEN_AT, LENGTH_AT, PAGES_AT = tl.constexpr(TOKEN), tl.constexpr(LENGTH), tl.constexpr(PAGES)


@triton.jit(do_not_specialize=["count", "rows"], do_not_specialize_on_alignment=["seats"])
def _read(state, seats, tokens, positions, slots, count, rows, width, page_size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    live, there = at < count, at < rows
    own = state + tl.load(seats + at, live, other=0) * width
    position = tl.load(own + LENGTH_AT, live, other=1) - 1
    page = tl.load(own + PAGES_AT + position // page_size, live, other=0)
    tl.store(tokens + at, tl.load(own + TOKEN_AT, live, other=0), there)
    tl.store(positions + at, position, there)
    tl.store(slots + at, page * page_size + position % page_size, there)


@triton.jit(do_not_specialize=["count"], do_not_specialize_on_alignment=["seats", "tokens"])
def _keep(state, seats, tokens, count, width, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    live = at < count
    own = state + tl.load(seats + at, live, other=0) * width
    tl.store(own + TOKEN_AT, tl.maximum(tl.load(tokens + at, live, other=0), 0), live)
    tl.store(own + LENGTH_AT, tl.load(own + LENGTH_AT, live, other=0) + 1, live)


class TritonSeatRows:
    """One program for 64 rows."""

    def read(self, state: Tensor, seats: Tensor, page_size: int, into: StepRows) -> None:
        rows = into.tokens.shape[0]
        grid = (triton.cdiv(rows, BLOCK),)
        _read[grid](state, seats, *into, seats.shape[0], rows, state.shape[1], page_size, BLOCK)

    def keep(self, state: Tensor, seats: Tensor, tokens: Tensor) -> None:
        count = seats.shape[0]
        _keep[(triton.cdiv(count, BLOCK),)](state, seats, tokens, count, state.shape[1], BLOCK)
