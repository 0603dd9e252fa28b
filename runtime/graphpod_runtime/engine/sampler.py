"""From logits to the next token."""

import torch
from torch import Tensor

from graphpod_runtime.engine.sequence import Sampling


def greedy(logits: Tensor) -> Tensor:
    """logits [rows, vocab] -> [rows]; the first of equal maxima."""
    return logits.argmax(dim=-1)


def draw(logits: Tensor, sampling: Sampling, position: int) -> int:
    """One token from logits [vocab]. With a seed the draw depends on seed and position alone, so it is the same
    in any batch and after a preemption.
    """
    if sampling.temperature == 0:
        return int(greedy(logits))
    # In float64 and below the maximum, so that no temperature above 0 overflows and no top_p above 0 is lost.
    logits = logits.double()
    probabilities = torch.softmax((logits - logits.max()) / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        probabilities = _nucleus(probabilities, sampling.top_p)
    generator = None
    if sampling.seed is not None:
        generator = torch.Generator().manual_seed((sampling.seed * 0x9E3779B97F4A7C15 + position) % 2**63)
    return int(torch.multinomial(probabilities, 1, generator=generator))


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Zeroes all but the smallest set of most likely tokens whose mass reaches `top_p`."""
    ordered, order = probabilities.sort(descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < top_p, ordered, 0.0)
    return torch.zeros_like(probabilities).scatter_(-1, order, kept)
