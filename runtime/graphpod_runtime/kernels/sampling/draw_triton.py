"""`draw` by Triton, in four launches over the logits, one where no row cuts. Imported only where Triton is.

With torch's operators a draw is about 200 passes over the logits: 2.8 ms for 32 rows of 151936 tokens on an H200.

A start draws once with every filter, so nothing is compiled while requests wait: no kernel is specialised by the number
of rows.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from graphpod_runtime.kernels.sampling import draw_triton_kernels as kernels
from graphpod_runtime.kernels.sampling.draw_triton_kernels import BINS, NUMBERS
from graphpod_runtime.kernels.sampling.sampling_tensors import SamplingTensors

BLOCK = 4096
"""Tokens of one program."""
LISTED = 8192
"""Tokens of a row's list. A row that has more between its bounds, as one whose logits are nearly equal, is read as a
whole instead."""


class Row(NamedTuple):
    """Logits as kernels read them."""

    logits: Tensor
    stride: int
    vocab: int
    chosen: Tensor
    """The best token of each row, or -1."""
    steepness: Tensor


def draw(logits: Tensor, chosen: Tensor, positions: Tensor, draws: SamplingTensors) -> Tensor:
    """Is a Draw, for logits on a CUDA device whose rows lie together."""
    (rows, vocab), parts = logits.shape, triton.cdiv(logits.shape[1], BLOCK)
    row = Row(logits, logits.stride(0), vocab, chosen, draws.inverse_temperatures)
    scores = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    tokens = torch.empty_like(scores, dtype=torch.int32)
    drawn = torch.empty(rows, dtype=torch.int64, device=logits.device)
    cuts = draws.cuts_k or draws.cuts_p
    known = masses = listed = tokens
    if cuts:
        widths = rows * 4, rows * NUMBERS.value, rows * BINS.value
        zeros = torch.zeros(sum(widths), dtype=torch.int32, device=logits.device)
        mass_words, known, histograms = zeros.split(widths)
        masses = mass_words.view(torch.int64)
        listed = torch.empty(rows, LISTED, dtype=torch.int32, device=logits.device)
        kernels.fill_histogram[(rows, parts)](*row, histograms, block=BLOCK)
        kernels.find_bounds[(rows,)](histograms, chosen, draws.top_k, draws.top_p, vocab, known)
    noise = draws.farthest, draws.seeds, positions.contiguous()
    between = known, masses, listed, scores, tokens, parts
    kernels.score_blocks[(rows, parts)](*row, *noise, *between, cuts=cuts, room=LISTED, block=BLOCK)
    kernels.decide[(rows,)](
        *row, draws.top_k, draws.top_p, *noise, *between, drawn,
        cuts=cuts, room=LISTED, blocks=triton.next_power_of_2(parts), num_warps=16,
    )  # fmt: skip
    return drawn
