"""Draws by Triton, in four launches, two where no row cuts. Imported only where Triton is.

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
from graphpod_runtime.kernels.triton_launch import Launches

BLOCK = 4096
"""Tokens of one program."""
LISTED = 8192
"""Tokens of a row's list. A row that has more between its bounds, as one whose logits are nearly equal, is read as a
whole instead."""


class Scratch(NamedTuple):
    """What kernels leave for each other, of so many rows at most."""

    histograms: Tensor
    """Zeros whenever a draw begins: who reads one leaves it so."""
    known: Tensor
    masses: Tensor

    @classmethod
    def of(cls, rows: int, device: torch.device) -> "Scratch":
        histograms, known, masses = (
            torch.zeros(rows, count, dtype=torch.int32, device=device) for count in (BINS.value, NUMBERS.value, 4)
        )
        return cls(histograms, known, masses.view(torch.int64))


class TritonDraw:
    """A Draw, for logits on a CUDA device whose rows lie together. One stream calls it."""

    def __init__(self) -> None:
        self._launch = Launches()
        self._scratch: Scratch | None = None

    def __call__(self, logits: Tensor, chosen: Tensor, positions: Tensor, draws: SamplingTensors) -> Tensor:
        (rows, vocab), stride, device = logits.shape, logits.stride(0), logits.device
        parts, cuts = triton.cdiv(vocab, BLOCK), draws.cuts_k or draws.cuts_p
        histograms, known, masses = self._scratch_of(rows, device)
        scores = torch.empty(rows, parts, dtype=torch.float32, device=device)
        tokens = torch.empty(rows, parts, dtype=torch.int32, device=device)
        drawn = torch.empty(rows, dtype=torch.int64, device=device)
        listed = torch.empty(rows, LISTED, dtype=torch.int32, device=device) if cuts else tokens
        kind = logits.dtype, stride, vocab, cuts, LISTED
        row = logits, stride, vocab, chosen, draws.inverse_temperatures
        if cuts:
            self._launch(kernels.fill_histogram, (rows, parts, 1), (*row, histograms, BLOCK), kind)
            bounds = histograms, chosen, draws.top_k, draws.top_p, vocab, known, masses
            self._launch(kernels.find_bounds, (rows, 1, 1), bounds, kind)
        noise = draws.farthest, draws.seeds, positions.contiguous()
        between = known, masses, listed, scores, tokens, parts
        self._launch(kernels.score_blocks, (rows, parts, 1), (*row, *noise, *between, cuts, LISTED, BLOCK), kind)
        decided = *row, draws.top_k, draws.top_p, *noise, *between, drawn, cuts, LISTED, triton.next_power_of_2(parts)
        self._launch(kernels.decide, (rows, 1, 1), decided, kind, num_warps=16)
        return drawn

    def _scratch_of(self, rows: int, device: torch.device) -> Scratch:
        if self._scratch is None or self._scratch.known.shape[0] < rows:
            self._scratch = Scratch.of(rows, device)
        return self._scratch
