"""Drawing tokens: all rows at once, and no row knows of another.

A draw is Gumbel-max over the filtered row, written with exponentials: argmax(log w + gumbel) is argmax(w / e), where
w = exp((logit - best) / temperature) and e is drawn from Exp(1). Both are single precision and have a relative error of
about 2e-7 at any size, while the logarithms would be rounded to 2e-6 near 20. e is -log1p(-v) of a v of 32 random bits,
because what wins has a small e, and there v keeps its relative precision; with the 24 bits of a plain uniform number,
tokens less likely than 1e-7 would be drawn far too often or never. With 32 bits that begins at 1e-10.

Its random bits are a pure function of a key and a counter, Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random
numbers: as easy as 1, 2, 3" (SC 2011). Integer operations of torch give the same ones on every device; the published
known answers are in the tests.

Every filter is an edge: a token stays when its distance below the best, (best - logit) / temperature, is at most the
edge. Tokens that are tied at an edge stay together, so no filter depends on the order of the vocabulary.
- top-k: the distance of the k-th likeliest token.
- top-p: the smallest distance within which the tokens that top-k left have at least top_p of their mass. Masses are
  whole numbers of 2**-40 of the best token's: their sums do not depend on the order of addition, so a row has one edge
  in every batch and on every device whose exp agrees.
- min-p: -log(min_p), because a token's probability is exp(-distance) of the best one's.
"""

from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from graphpod_runtime.kernels.sampling.sampling_tensors import LARGEST_UNIFORM, LEAST_MASS, SamplingTensors

DIGITS = ((24, 7), (16, 8), (8, 8), (0, 8))
"""(shift, width) of the parts in which an edge is found: a non-negative float's 31 bits."""
WORKING_BYTES = 32 << 20
"""Of the single-precision logits that are drawn from at one time; the work takes about ten times as much."""
WORD = 0xFFFFFFFF
"""32 bits."""
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
"""What is added to the two words of the key after each round."""

Four = tuple[Tensor, Tensor, Tensor, Tensor]


class Draw(Protocol):
    """A way to draw."""

    def __call__(self, logits: Tensor, chosen: Tensor, positions: Tensor, draws: SamplingTensors) -> Tensor:
        """A token for each row of logits [rows, vocab]: a pure function of the row, its parameters, its seed and the
        index that the token will have in its sequence, one more than positions [rows], which the rows were computed
        from. `chosen` [rows] are the likeliest tokens; -1 for a row whose largest logit is not finite, and so is what
        is drawn for it.
        """


def drawer_for(device: torch.device) -> Draw:
    """The fastest one of `device`."""
    if device.type != "cuda" or find_spec("triton") is None:
        return draw_by_torch
    from graphpod_runtime.kernels.sampling.draw_triton import TritonDraw

    return TritonDraw()


def rows_of_work(vocab: int) -> int:
    """Rows of single-precision logits that are worked on at one time."""
    return max(1, WORKING_BYTES // (4 * vocab))


def draw_by_torch(logits: Tensor, chosen: Tensor, positions: Tensor, draws: SamplingTensors) -> Tensor:
    """Is a Draw, for any device."""
    rows, size = logits.shape[0], rows_of_work(logits.shape[1])
    if rows <= size:
        return _draw(logits, chosen, positions, draws)
    spans = [(first, min(rows, first + size)) for first in range(0, rows, size)]
    return torch.cat([_draw(logits[a:b], chosen[a:b], positions[a:b], draws.slice(a, b)) for a, b in spans])


def _draw(logits: Tensor, chosen: Tensor, positions: Tensor, draws: SamplingTensors) -> Tensor:
    best = logits.gather(1, chosen.clamp(min=0)[:, None]).float()
    distance = (best - logits.float()).mul_(draws.inverse_temperatures[:, None])
    weights = distance.neg().exp_()
    edge = _edge(distance, weights, draws)
    scores = weights.div_(exponentials(draws.seeds, positions + 1, logits.shape[1]))
    if edge is not None:
        scores.masked_fill_(distance > edge, -1.0)
    return scores.argmax(-1).masked_fill_(chosen < 0, -1)


def exponentials(seeds: Tensor, positions: Tensor, count: int) -> Tensor:
    """Numbers of Exp(1), float32 [rows, count], of seeds and positions [rows]: token i gets word i % 4 of the block
    whose counter is (i // 4, position, 0, 0) and whose key is the seed."""
    blocks = torch.arange(-(-count // 4), device=seeds.device)[None]
    seeds, positions = seeds[:, None], positions[:, None]
    nothing = torch.zeros_like(positions)
    words = philox((blocks, positions, nothing, nothing), (seeds & WORD, (seeds >> 32) & WORD))
    bits = torch.stack(words, -1).flatten(1)[:, :count]
    return bits.float().add_(0.5).mul_(2.0**-32).clamp_(max=LARGEST_UNIFORM).neg_().log1p_().neg_()


def philox(counter: Four, key: tuple[Tensor, Tensor]) -> Four:
    """Four words for each counter and key. All are int64 that hold 32-bit words, of shapes that broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _product(c0, MULTIPLIERS[0])
        high1, low1 = _product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def _product(word: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """High and low word of word × multiplier, which has 64 bits and would overflow int64.

    The multiplier is at least 2**31, so less 2**32 it is negative and its product with a word is above -2**63. What
    that leaves out, word × 2**32, belongs to the high word alone.
    """
    product = word * (multiplier - (1 << 32))
    return (product >> 32) + word, product & WORD


def _edge(distance: Tensor, weights: Tensor, draws: SamplingTensors) -> Tensor | None:
    """[rows, 1]: the largest distance that stays; None when no row cuts."""
    edge = draws.farthest[:, None] if draws.cuts_far else None
    if not (draws.cuts_k or draws.cuts_p):
        return edge
    # Floats that are not negative are in the order of their bits. A NaN's sign must not become a negative index.
    keys = (distance.view(torch.int32) & 0x7FFFFFFF).long()
    kth = None
    if draws.cuts_k:
        kth = _smallest(keys, torch.ones_like(keys), draws.top_k.clamp(max=keys.shape[1])[:, None])
        edge = _closer(edge, _distance(kth))
    if draws.cuts_p:
        masses = weights.mul(1 / LEAST_MASS).long()
        if kth is not None:
            masses.masked_fill_(keys > kth, 0)
        total = masses.sum(-1, keepdim=True)
        wanted = (draws.top_p[:, None] * total.double()).ceil_().long().clamp_(min=1)
        nucleus = _distance(_smallest(keys, masses, torch.minimum(wanted, total)))
        edge = _closer(edge, nucleus.masked_fill_(draws.top_p[:, None] >= 1, torch.inf))
    return edge


def _closer(edge: Tensor | None, other: Tensor) -> Tensor:
    return other if edge is None else torch.minimum(edge, other)


def _distance(keys: Tensor) -> Tensor:
    return keys.to(torch.int32).view(torch.float32)


def _smallest(keys: Tensor, masses: Tensor, wanted: Tensor) -> Tensor:
    """The smallest key [rows, 1] such that tokens of it and smaller ones have the mass `wanted` [rows, 1], digit by
    digit: whole numbers may be added up in any order, so a histogram gives the exact answer without a sort."""
    found = torch.zeros_like(wanted)
    for shift, width in DIGITS:
        prefix = keys >> shift
        here = masses.masked_fill(prefix >> width != found, 0)
        histogram = here.new_zeros(keys.shape[0], 1 << width).scatter_add_(1, prefix & ((1 << width) - 1), here)
        reached = histogram.cumsum(-1)
        digit = (reached < wanted).sum(-1, keepdim=True).clamp_(max=(1 << width) - 1)
        wanted = wanted - (reached - histogram).gather(1, digit)
        found = (found << width) | digit
    return found
