"""The kernels of `draw_triton.py`. Imported only where Triton is.

The arithmetic is `draw.py`'s. An edge of top-k or top-p is found in two steps. A histogram over the distance
below the best token bounds the mass within each bin from both sides, and so names the few bins where an edge can lie.
The tokens of those bins are listed, a hundredth of the row, and one program a row finds the exact edges among them.
"""

import math

import triton
import triton.language as tl
from triton.language.extra import libdevice

from graphpod_runtime.kernels.sampling.sampling_tensors import LARGEST_UNIFORM, LEAST_MASS

BINS = tl.constexpr(512)
STEPS = tl.constexpr(16.0)
"""Bins of one unit of distance. Where the last one begins, at 32, a token has no mass."""
FAR_END = tl.constexpr(math.exp(-1 / 16))
"""Of a token's weight at the near end of its bin, what it is at the far end."""
UNCUT = tl.constexpr(0x7FFFFFFF)
"""No key is larger."""
UNITS = tl.constexpr(1 / LEAST_MASS)
LAST = tl.constexpr(LARGEST_UNIFORM)
SLACK = tl.constexpr(1e-5)
"""Of bounds, relative: exponentials are rounded."""
NUMBERS = tl.constexpr(5)
WITHIN, UPTO, KTH, BEFORE, COUNT = (tl.constexpr(at) for at in range(5))
"""What is known of a row, int32: its edge of top-p lies in bins [WITHIN, UPTO], its k-th token in bin KTH, which BEFORE
tokens are ahead of; COUNT tokens are listed."""


@triton.jit
def _distance(logits, row, stride, at, inside, chosen, steepness):
    """Below the best token, in units of the temperature."""
    own, token = logits + row * stride, tl.load(chosen + row)
    best = tl.load(own + tl.maximum(token, 0)).to(tl.float32)
    best = tl.where(token < 0, float("inf"), best)  # of a row that has no best token all are far
    x = tl.load(own + at, inside, other=0.0).to(tl.float32)
    return (best - x) * tl.load(steepness + row)


@triton.jit
def _key(distance):
    """Its bits, in the same order. A NaN's sign must not become a negative number."""
    return distance.to(tl.int32, bitcast=True) & UNCUT


@triton.jit
def _bin(distance):
    """The last one for whatever is far, and for a NaN."""
    at = distance * STEPS
    return tl.where(at < BINS - 1, at, BINS - 1).to(tl.int32)


@triton.jit
def _mass(distance):
    """In whole units."""
    return (libdevice.exp(-distance) * UNITS).to(tl.int64)


@triton.jit
def _score(distance, word):
    """Of a token's weight and the 32 random bits of its place."""
    uniform = tl.minimum((word.to(tl.float32) + 0.5) * 2.3283064365386963e-10, LAST)
    return libdevice.exp(-distance) / -libdevice.log1p(-uniform)


@triton.jit(do_not_specialize_on_alignment=["logits", "chosen", "steepness", "histograms"])
def fill_histogram(logits, stride, vocab, chosen, steepness, histograms, block: tl.constexpr):
    """How many tokens of a row lie in each bin."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    inside = at < vocab
    bins = tl.where(inside, _bin(_distance(logits, row, stride, at, inside, chosen, steepness)), BINS - 1)
    counts = tl.histogram(bins, BINS)
    numbers = tl.arange(0, BINS)
    counts -= tl.where(numbers == BINS - 1, tl.sum((~inside).to(tl.int32), 0), 0)
    tl.atomic_add(histograms + row * BINS + numbers, counts, counts > 0, sem="relaxed")


@triton.jit(do_not_specialize_on_alignment=["histograms", "chosen", "top_k", "top_p", "known", "masses"])
def find_bounds(histograms, chosen, top_k, top_p, vocab, known, masses):
    """Where a row's edges can lie. The histogram is zeros behind it, and so are the sums that come next.

    A bin's mass is at least that of as many tokens at its far end, at most that of as many at its near end. The tokens
    up to a bin have top_p of the mass when (1 - top_p) · theirs is at least top_p · the rest.
    """
    row = tl.program_id(0).to(tl.int64)
    bins = tl.arange(0, BINS)
    counts = tl.load(histograms + row * BINS + bins)
    tl.store(histograms + row * BINS + bins, tl.zeros_like(counts))
    reached = tl.cumsum(counts, 0)
    none = tl.load(chosen + row) < 0  # nothing is drawn
    k, p = tl.where(none, vocab, tl.load(top_k + row)), tl.where(none, 1.0, tl.load(top_p + row))
    kth = tl.where(k < vocab, tl.sum((reached < k).to(tl.int32), 0), BINS)
    before = tl.sum(tl.where(bins < kth, counts, 0), 0)
    kept = tl.where(bins <= kth, counts, 0).to(tl.float64)
    near = libdevice.exp(-bins.to(tl.float64) / STEPS)
    most = kept * near
    sure = tl.where(bins == kth, (k - before).to(tl.float64), kept)
    least = tl.where(bins == BINS - 1, 0.0, sure * near * FAR_END)
    most_to, least_to = tl.cumsum(most, 0), tl.cumsum(least, 0)
    most_after, least_after = tl.sum(most, 0) - most_to, tl.sum(least, 0) - least_to
    cut = vocab / UNITS  # each mass is cut to whole units
    enough = (1 - p) * (least_to * (1 - SLACK) - cut) >= p * most_after * (1 + SLACK)
    short = (1 - p) * most_to * (1 + SLACK) < p * (least_after * (1 - SLACK) - cut)
    upto = tl.minimum(tl.minimum(tl.sum((~enough).to(tl.int32), 0), BINS - 1), kth)
    within = tl.minimum(tl.sum(short.to(tl.int32), 0), upto)
    within, upto = tl.where(p < 1, within, BINS), tl.where(p < 1, upto, BINS)
    own = known + row * NUMBERS
    tl.store(own + WITHIN, within)
    tl.store(own + UPTO, upto)
    tl.store(own + KTH, kth.to(tl.int32))
    tl.store(own + BEFORE, before.to(tl.int32))
    tl.store(own + COUNT, 0)
    tl.store(masses + row * 2, tl.zeros((), tl.int64))
    tl.store(masses + row * 2 + 1, tl.zeros((), tl.int64))


@triton.jit
def _unsure(bins, within, upto, kth):
    """Whether tokens of `bins` lie where an edge can."""
    return ((bins >= within) & (bins <= upto)) | (bins == kth)


@triton.jit(
    do_not_specialize_on_alignment=[
        "logits",
        "chosen",
        "steepness",
        "farthest",
        "seeds",
        "positions",
        "known",
        "masses",
    ]
)
def score_blocks(
    logits, stride, vocab, chosen, steepness, farthest, seeds, positions, known, masses, listed, scores, tokens, parts,
    cuts: tl.constexpr, room: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The best score of one block among the tokens that stay whatever the edges are, and its token: the first one of
    equals. Lists those that an edge decides, and adds up the masses in front of them and behind them."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    counter = part * (block // 4) + tl.arange(0, block // 4)
    zero = tl.zeros((block // 4,), tl.uint32)
    place = zero + (tl.load(positions + row) + 1).to(tl.uint32)
    words = tl.philox(tl.load(seeds + row), counter.to(tl.uint32), place, zero, zero)
    far = tl.load(farthest + row)
    top = tl.full((), -2.0, tl.float32)
    token = tl.full((), 0, tl.int32)
    front = tl.zeros((block // 4,), tl.int64)
    behind = tl.zeros((block // 4,), tl.int64)
    amount = tl.zeros((block // 4,), tl.int32)
    if cuts:
        own = known + row * NUMBERS
        within, upto, kth = tl.load(own + WITHIN), tl.load(own + UPTO), tl.load(own + KTH)
    for n in tl.static_range(4):
        at = counter * 4 + n
        inside = at < vocab
        distance = _distance(logits, row, stride, at, inside, chosen, steepness)
        stays = inside & (distance <= far)
        if cuts:
            bins = _bin(distance)
            unsure = _unsure(bins, within, upto, kth)
            ahead = ~unsure & (bins < within) & (bins < kth)
            mass = _mass(distance)
            front += tl.where(inside & ahead, mass, 0)
            behind += tl.where(inside & ~unsure & ~ahead & (bins < kth), mass, 0)
            amount += (inside & unsure).to(tl.int32)
            stays = stays & ahead
        score = tl.where(stays, _score(distance, words[n]), -1.0)
        score = tl.where(inside, score, -2.0)
        here, index = tl.max(score, 0, return_indices=True)
        leader = (part * (block // 4) + index) * 4 + n
        better = (here > top) | ((here == top) & (leader < token))
        top = tl.where(better, here, top)
        token = tl.where(better, leader, token)
    if cuts:
        ahead_of_edges, past_edges = tl.sum(front, 0), tl.sum(behind, 0)
        tl.atomic_add(masses + row * 2, ahead_of_edges, ahead_of_edges > 0, sem="relaxed")
        tl.atomic_add(masses + row * 2 + 1, past_edges, past_edges > 0, sem="relaxed")
        found = tl.sum(amount, 0)
        if found > 0:
            place_in_list = tl.atomic_add(own + COUNT, found, sem="relaxed") + tl.cumsum(amount, 0) - amount
            for n in tl.static_range(4):
                at = counter * 4 + n
                inside = at < vocab
                distance = _distance(logits, row, stride, at, inside, chosen, steepness)
                unsure = inside & _unsure(_bin(distance), within, upto, kth)
                tl.store(listed + row * room + place_in_list, at, unsure & (place_in_list < room))
                place_in_list += unsure.to(tl.int32)
    tl.store(scores + row * parts + part, top)
    tl.store(tokens + row * parts + part, token)


@triton.jit
def _tile(logits, row, stride, vocab, chosen, steepness, listed, number, fits, room: tl.constexpr, count):
    """(tokens, whether each is there, distances) of a row's list, or of one stretch of the row."""
    at = tl.arange(0, room)
    if fits:
        there = at < count
        token = tl.load(listed + row * room + at, there, other=0)
    else:
        token = number * room + at
        there = token < vocab
    return token, there, _distance(logits, row, stride, token, there, chosen, steepness)


@triton.jit
def _amounts(distance, there, most, bins_from, bins_upto, weighted: tl.constexpr):
    """What each token counts: 1 or its mass, 0 outside the bins and where its key is above `most`."""
    bins = _bin(distance)
    counted = there & (_key(distance) <= most) & (bins >= bins_from) & (bins <= bins_upto)
    if weighted:
        return tl.where(counted, _mass(distance), 0)
    return counted.to(tl.int64)


@triton.jit
def _rest(
    logits, row, stride, vocab, chosen, steepness, tiles, limit, most, bins_from, bins_upto, weighted: tl.constexpr,
    room: tl.constexpr,
):  # fmt: skip
    """The amounts of all tiles but the first one whose keys are at most `limit`. A list is one tile."""
    total = tl.zeros((), tl.int64)
    for number in range(1, tiles):
        at = number * room + tl.arange(0, room)
        inside = at < vocab
        distance = _distance(logits, row, stride, at, inside, chosen, steepness)
        amounts = _amounts(distance, inside, most, bins_from, bins_upto, weighted)
        total += tl.sum(tl.where(_key(distance) <= limit, amounts, 0), 0)
    return total


@triton.jit
def _edge(
    logits, row, stride, vocab, chosen, steepness, tiles, key, amounts, wanted, most, bins_from, bins_upto,
    weighted: tl.constexpr, room: tl.constexpr,
):  # fmt: skip
    """The smallest key up to which the tokens within bins have `wanted`; `amounts` are those of the first tile."""
    low = (bins_from.to(tl.float32) / STEPS).to(tl.int32, bitcast=True)
    high = tl.where(bins_upto < BINS - 1, ((bins_upto + 1).to(tl.float32) / STEPS).to(tl.int32, bitcast=True), UNCUT)
    while low < high:
        middle = low + (high - low) // 2
        reached = tl.sum(tl.where(key <= middle, amounts, 0), 0)
        if tiles > 1:
            reached += _rest(
                logits, row, stride, vocab, chosen, steepness, tiles, middle, most, bins_from, bins_upto, weighted,
                room,
            )  # fmt: skip
        if reached >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


@triton.jit(
    do_not_specialize_on_alignment=[
        "logits", "chosen", "steepness", "top_k", "top_p", "farthest", "seeds", "positions", "known", "masses"
    ]
)  # fmt: skip
def decide(
    logits, stride, vocab, chosen, steepness, top_k, top_p, farthest, seeds, positions, known, masses, listed, scores,
    tokens, parts, drawn, cuts: tl.constexpr, room: tl.constexpr, blocks: tl.constexpr,
):  # fmt: skip
    """A row's token: the best one of its blocks, and of its list the best one within the exact edges."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, blocks)
    leading = tl.load(scores + row * parts + at, at < parts, other=-3.0)
    leaders = tl.load(tokens + row * parts + at, at < parts, other=0)
    top = tl.max(leading, 0)
    best = tl.min(tl.where(leading == top, leaders, UNCUT), 0)
    if cuts:
        own = known + row * NUMBERS
        within, upto, kth = tl.load(own + WITHIN), tl.load(own + UPTO), tl.load(own + KTH)
        count = tl.load(own + COUNT)
        fits = count <= room
        tiles = tl.where(fits, 1, tl.cdiv(vocab, room))
        _, there, distance = _tile(logits, row, stride, vocab, chosen, steepness, listed, 0, fits, room, count)
        key = _key(distance)
        edge = tl.full((), UNCUT, tl.int32)
        if kth < BINS:
            one_each = _amounts(distance, there, UNCUT, kth, kth, False)
            edge = _edge(
                logits, row, stride, vocab, chosen, steepness, tiles, key, one_each,
                tl.load(top_k + row) - tl.load(own + BEFORE), UNCUT, kth, kth, False, room,
            )  # fmt: skip
        if within < BINS:
            # Of the bin of the k-th token only what is in front of it has a mass; it may lie behind the others.
            front, extra = tl.load(masses + row * 2), tl.where((kth < BINS) & (kth > upto), kth, BINS)
            mass = _amounts(distance, there, edge, within, upto, True)
            total = front + tl.load(masses + row * 2 + 1) + tl.sum(mass, 0)
            total += tl.sum(_amounts(distance, there, edge, extra, extra, True), 0)
            if tiles > 1:
                total += _rest(
                    logits, row, stride, vocab, chosen, steepness, tiles, UNCUT, edge, within, upto, True, room
                )
                total += _rest(
                    logits, row, stride, vocab, chosen, steepness, tiles, UNCUT, edge, extra, extra, True, room
                )
            share = libdevice.ceil(tl.load(top_p + row) * total.to(tl.float64)).to(tl.int64)
            wanted = tl.minimum(tl.maximum(share, 1), total)
            nucleus = _edge(
                logits, row, stride, vocab, chosen, steepness, tiles, key, mass, wanted - front, edge, within, upto,
                True, room,
            )  # fmt: skip
            edge = tl.minimum(edge, nucleus)
        edge = tl.minimum(edge, _key(tl.load(farthest + row)))
        seed, place = tl.load(seeds + row), tl.load(positions + row) + 1
        for number in range(tiles):
            token, here, other = _tile(logits, row, stride, vocab, chosen, steepness, listed, number, fits, room, count)
            zero = tl.zeros((room,), tl.uint32)
            w0, w1, w2, w3 = tl.philox(seed, (token // 4).to(tl.uint32), zero + place.to(tl.uint32), zero, zero)
            lane = token % 4
            word = tl.where(lane == 0, w0, tl.where(lane == 1, w1, tl.where(lane == 2, w2, w3)))
            unsure = here & _unsure(_bin(other), within, upto, kth)
            score = tl.where(unsure & (_key(other) <= edge), _score(other, word), -1.0)
            most = tl.max(score, 0)
            leader = tl.min(tl.where(score == most, token, UNCUT), 0)
            better = (most > top) | ((most == top) & (leader < best))
            top = tl.where(better, most, top)
            best = tl.where(better, leader, best)
    tl.store(drawn + row, tl.where(tl.load(chosen + row) < 0, -1, best).to(tl.int64))
