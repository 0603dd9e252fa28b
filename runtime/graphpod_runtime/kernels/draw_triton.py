"""`draw` by Triton: one launch draws, and one for each digit finds an edge. Imported only where Triton is.

The arithmetic is kernels/draw.py's. With torch's operators it takes about 200 passes over the logits: 2.8 ms for
32 rows of 151936 tokens on an H200, more than a decode step of a small model; here it takes 0.45 ms.

A start draws once with every filter, so nothing is compiled while requests wait: no kernel is specialised by the number
of rows.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from graphpod_runtime.kernels.draws import LARGEST_UNIFORM, LEAST_MASS, Draws

BLOCK = 4096
"""Tokens of one program."""
DIGITS = 8
"""An edge has 31 bits, the bits of a float that is not negative; they are found from the top, a digit at a time."""
WIDTH = tl.constexpr(4)
"""Bits of a digit."""
BINS = tl.constexpr(16)
UNCUT = 0x7FFFFFFF
"""No key is larger."""
UNITS = tl.constexpr(1 / LEAST_MASS)
LAST = tl.constexpr(LARGEST_UNIFORM)


@triton.jit
def _below(logits, row, stride, at, inside, best, steepness):
    """(distance below the best token in units of the temperature, its key: bits in the same order) of tokens `at`."""
    x = tl.load(logits + row * stride + at, inside, other=0.0).to(tl.float32)
    distance = (tl.load(best + row) - x) * tl.load(steepness + row)
    return distance, distance.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _reached(histogram, row, found, wanted):
    """`found` with one digit more, that at which the row's sums reach `wanted`, and what is wanted within the digit."""
    bins = tl.arange(0, BINS)
    here = tl.load(histogram + row * BINS + bins)
    digit = tl.minimum(tl.sum((tl.cumsum(here, 0) < wanted).to(tl.int64), 0), BINS - 1)
    return (found << WIDTH) | digit, wanted - tl.sum(tl.where(bins < digit, here, 0), 0)


@triton.jit
def _nucleus(histogram, row, top_p):
    """top_p of the row's whole mass, which the first digit's histogram holds."""
    total = tl.sum(tl.load(histogram + row * BINS + tl.arange(0, BINS)), 0)
    share = libdevice.ceil(tl.load(top_p + row) * total.to(tl.float64)).to(tl.int64)
    return tl.minimum(tl.maximum(share, 1), total)


@triton.jit(
    do_not_specialize=["rows", "digit", "shift"],
    do_not_specialize_on_alignment=["logits", "best", "steepness", "top_p", "limits"],
)
def _digit(
    logits, stride, vocab, best, steepness, top_p, limits, found, wanted, histograms, rows, digit, shift,
    weighted: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Adds the masses of one block of a row to the row's histogram of a digit.

    found, wanted [digits, rows] and histograms [digits, rows, bins]: an entry for each digit, so that programs of one
    launch only read what the launch before has written.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    above = tl.load(found + row)
    if digit > 0:
        last = histograms + (digit - 1) * rows * BINS
        aim = tl.load(wanted + (digit - 1) * rows + row)
        if weighted:  # noqa: SIM102  # this one is decided when the kernel is compiled, the other one while it runs
            if digit == 1:
                aim = _nucleus(last, row, top_p)
        above, aim = _reached(last, row, tl.load(found + (digit - 1) * rows + row), aim)
        tl.store(found + digit * rows + row, above, part == 0)
        tl.store(wanted + digit * rows + row, aim, part == 0)
    at = part * block + tl.arange(0, block)
    inside = at < vocab
    distance, key = _below(logits, row, stride, at, inside, best, steepness)
    prefix = (key >> shift).to(tl.int64)
    counted = inside & ((prefix >> WIDTH) == above) & (key <= tl.load(limits + row))
    mass = counted.to(tl.int64)
    if weighted:
        mass = tl.where(counted, (libdevice.exp(-distance) * UNITS).to(tl.int64), 0)
    here = histograms + digit * rows * BINS + row * BINS
    for n in tl.static_range(16):
        amount = tl.sum(tl.where((prefix & (BINS - 1)) == n, mass, 0), 0)
        tl.atomic_add(here + n, amount, amount > 0)


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["edges"])
def _edge(found, wanted, histograms, rows, edges, digits: tl.constexpr):
    """The whole key of each row."""
    row = tl.program_id(0).to(tl.int64)
    last = digits - 1
    key, _ = _reached(
        histograms + last * rows * BINS, row, tl.load(found + last * rows + row), tl.load(wanted + last * rows + row)
    )
    tl.store(edges + row, key.to(tl.int32))


@triton.jit(
    do_not_specialize_on_alignment=["logits", "best", "steepness", "edges", "seeds", "positions", "scores", "tokens"]
)
def _scores(
    logits, stride, vocab, best, steepness, edges, seeds, positions, scores, tokens, parts, block: tl.constexpr,
):  # fmt: skip
    """The best score of one block of a row, and its token: the first one of equals."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    counter = part * (block // 4) + tl.arange(0, block // 4)
    zero = tl.zeros((block // 4,), tl.uint32)
    place = zero + tl.load(positions + row).to(tl.uint32)
    words = tl.philox(tl.load(seeds + row), counter.to(tl.uint32), place, zero, zero)
    top = tl.full((), -2.0, tl.float32)
    token = tl.full((), 0, tl.int32)
    for n in tl.static_range(4):
        at = counter * 4 + n
        inside = at < vocab
        distance, key = _below(logits, row, stride, at, inside, best, steepness)
        uniform = tl.minimum((words[n].to(tl.float32) + 0.5) * 2.3283064365386963e-10, LAST)
        score = libdevice.exp(-distance) / -libdevice.log1p(-uniform)
        score = tl.where(key > tl.load(edges + row), -1.0, score)
        score = tl.where(inside, score, -2.0)
        here, index = tl.max(score, 0, return_indices=True)
        first = (part * (block // 4) + index) * 4 + n
        better = (here > top) | ((here == top) & (first < token))
        top = tl.where(better, here, top)
        token = tl.where(better, first, token)
    tl.store(scores + row * parts + part, top)
    tl.store(tokens + row * parts + part, token)


def draw(logits: Tensor, positions: Tensor, draws: Draws) -> Tensor:
    """As kernels.draw.draw, for logits on a CUDA device whose rows lie together."""
    (rows, vocab), parts = logits.shape, triton.cdiv(logits.shape[1], BLOCK)
    best = logits.amax(-1).float()
    row = (logits, logits.stride(0), vocab, best, draws.inverse_temperatures)
    scores = best.new_empty(rows, parts)
    tokens = torch.empty_like(scores, dtype=torch.int32)
    edges = _edges(row, (rows, parts), draws)
    _scores[(rows, parts)](*row, edges, draws.seeds, positions.contiguous(), scores, tokens, parts, block=BLOCK)
    drawn = tokens.gather(1, scores.argmax(-1, keepdim=True))[:, 0].long()
    return drawn.masked_fill_(best.isfinite().logical_not_(), -1)


def _edges(row: tuple[Any, ...], grid: tuple[int, int], draws: Draws) -> Tensor:
    """The largest key that stays, int32 [rows]."""
    uncut = draws.seeds.new_full(grid[:1], UNCUT, dtype=torch.int32)
    edges = draws.farthest.view(torch.int32) if draws.cuts_far else uncut
    kth = uncut
    if draws.cuts_k:
        kth = _smallest(row, grid, draws.top_p, uncut, draws.top_k.clamp(max=row[2]))
        edges = torch.minimum(edges, kth)
    if draws.cuts_p:
        nucleus = _smallest(row, grid, draws.top_p, kth, None)
        edges = torch.minimum(edges, nucleus.masked_fill_(draws.top_p >= 1, UNCUT))
    return edges


def _smallest(
    row: tuple[Any, ...], grid: tuple[int, int], top_p: Tensor, limits: Tensor, counts: Tensor | None
) -> Tensor:
    """The smallest key, int32 [rows], that has the wanted mass together with all smaller ones: `counts` tokens, or
    top_p of the weights of those within `limits`."""
    rows = grid[0]
    found, wanted = limits.new_zeros((2, DIGITS, rows), dtype=torch.int64)
    if counts is not None:
        wanted[0] = counts
    histograms = found.new_zeros((DIGITS, rows, BINS.value))
    edges = torch.empty_like(limits)
    for digit in range(DIGITS):
        shift = WIDTH.value * (DIGITS - 1 - digit)
        _digit[grid](
            *row, top_p, limits, found, wanted, histograms, rows, digit, shift, weighted=counts is None, block=BLOCK
        )
    _edge[grid[:1]](found, wanted, histograms, rows, edges, digits=DIGITS)
    return edges
