"""Routing by Triton: which experts compute a token, and where the rows of each expert lie.

Imported only where Triton is.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PAIRS, OTHERS = 16, 256
"""Of a token and an expert: those that a program finds the rows of, and those that it compares them with at once."""
FEW, PART = 1024, 512
"""Pairs that are compared each with each; of more than FEW, those of a part, once each part has counted its own."""


@triton.jit
def _choose(
    scores, choices, weights, experts, scale, chosen: tl.constexpr, normalised: tl.constexpr, block: tl.constexpr
):
    token = tl.program_id(0)
    at = tl.arange(0, block)
    inside = at < experts
    own = tl.load(scores + token * experts + at, inside, other=float("-inf")).to(tl.float32)
    largest = tl.max(own)
    total = tl.sum(tl.where(inside, tl.exp(own - largest), 0.0))
    left = own
    if normalised:
        total = 0.0
        for _ in tl.static_range(chosen):
            best = tl.max(left)
            total += tl.exp(best - largest)
            left = tl.where(at == tl.argmax(left, 0), float("-inf"), left)
        left = own
    for number in tl.static_range(chosen):
        best = tl.max(left)
        # Scores that are no numbers choose some expert, too: none outside.
        expert = tl.minimum(tl.argmax(left, 0), experts - 1)
        tl.store(choices + token * chosen + number, expert.to(tl.int64))
        tl.store(weights + token * chosen + number, scale * tl.exp(best - largest) / total)
        left = tl.where(at == expert, float("-inf"), left)


@triton.jit
def _compare(
    choices, rows, tokens, ends, totals, pairs, experts, chosen, adds: tl.constexpr, each: tl.constexpr,
    others: tl.constexpr,
):  # fmt: skip
    """A row for each pair: behind those of experts before its own, and of pairs of its own before it."""
    at = tl.program_id(0) * each + tl.arange(0, each)
    own = tl.load(choices + at, at < pairs, other=0)
    row = tl.zeros((each,), tl.int32)
    end = tl.zeros((each,), tl.int32)
    for first in range(0, pairs, others):
        other = first + tl.arange(0, others)
        its = tl.load(choices + other, other < pairs, other=experts)
        earlier = (its[None, :] < own[:, None]) | ((its[None, :] == own[:, None]) & (other[None, :] < at[:, None]))
        row += tl.sum(earlier.to(tl.int32), 1)
        end += tl.sum((its[None, :] <= at[:, None]).to(tl.int32), 1)
    tl.store(rows + at, row.to(tl.int64), at < pairs)
    tl.store(tokens + row, (at // chosen).to(tl.int64), at < pairs)
    tl.store(ends + at, end, at < experts)
    if adds:
        tl.store(totals + at, tl.load(totals + at, at < experts, other=0) + end, at < experts)


@triton.jit
def _count(choices, counts, pairs, experts, all_experts: tl.constexpr, part: tl.constexpr, others: tl.constexpr):
    """Pairs of each expert in part `program_id` of all."""
    number = tl.program_id(0)
    expert = tl.arange(0, all_experts)
    count = tl.zeros((all_experts,), tl.int32)
    for first in range(0, part, others):
        at = number * part + first + tl.arange(0, others)
        own = tl.load(choices + at, at < pairs, other=experts)
        count += tl.sum((own[None, :] == expert[:, None]).to(tl.int32), 1)
    tl.store(counts + number * experts + expert, count, expert < experts)


@triton.jit
def _sort(
    choices, counts, rows, tokens, ends, totals, pairs, experts, chosen, parts, adds: tl.constexpr,
    all_experts: tl.constexpr, part: tl.constexpr, each: tl.constexpr, others: tl.constexpr,
):  # fmt: skip
    """As `_compare`, which looks at all pairs: of other parts their counts are enough."""
    at = tl.program_id(0) * each + tl.arange(0, each)
    own = tl.load(choices + at, at < pairs, other=0)
    its_part = tl.program_id(0) * each // part
    expert = tl.arange(0, all_experts)
    total = tl.zeros((all_experts,), tl.int32)
    before = tl.zeros((all_experts,), tl.int32)
    for number in range(0, parts):
        count = tl.load(counts + number * experts + expert, expert < experts, other=0)
        total += count
        before += tl.where(number < its_part, count, 0)
    end = tl.cumsum(total, 0)
    first = end - total + before
    row = tl.sum(tl.where(own[:, None] == expert[None, :], first[None, :], 0), 1)
    for step in range(0, part, others):
        other = its_part * part + step + tl.arange(0, others)
        its = tl.load(choices + other, other < pairs, other=experts)
        row += tl.sum(((its[None, :] == own[:, None]) & (other[None, :] < at[:, None])).to(tl.int32), 1)
    tl.store(rows + at, row.to(tl.int64), at < pairs)
    tl.store(tokens + row, (at // chosen).to(tl.int64), at < pairs)
    alone = (expert < experts) & (tl.program_id(0) == 0)
    tl.store(ends + expert, end, alone)
    if adds:
        tl.store(totals + expert, tl.load(totals + expert, alone, other=0) + end, alone)


def chosen_experts(scores: Tensor, chosen: int, normalised: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Of contiguous scores [tokens, experts]: the experts of the `chosen` largest [tokens, chosen], and their weights
    in float32, by a softmax over the chosen if `normalised`, else over all, times `scale`."""
    tokens, experts = scores.shape
    choices = torch.empty(tokens, chosen, dtype=torch.int64, device=scores.device)
    weights = torch.empty(tokens, chosen, dtype=torch.float32, device=scores.device)
    block = triton.next_power_of_2(experts)
    _choose[(tokens,)](scores, choices, weights, experts, scale, chosen, normalised, block, num_warps=1)
    return choices, weights


def sorted_rows(choices: Tensor, experts: int, totals: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The token of each row, the row of each pair, and where the rows of each expert end, as `Routes` has them, of
    contiguous choices [tokens, chosen]. These ends are added to `totals` [experts], int64, by the same launch."""
    tokens, chosen = choices.shape
    pairs, device = tokens * chosen, choices.device
    of_rows, rows = (torch.empty(pairs, dtype=torch.int64, device=device) for _ in range(2))
    ends = torch.empty(experts, dtype=torch.int32, device=device)
    adds, added = totals is not None, ends if totals is None else totals
    if pairs <= FEW:
        grid = (triton.cdiv(max(pairs, experts), PAIRS),)
        _compare[grid](
            choices, rows, of_rows, ends, added, pairs, experts, chosen, adds, PAIRS, OTHERS, num_warps=4
        )  # fmt: skip
        return of_rows, rows.view(tokens, chosen), ends
    parts, all_experts = triton.cdiv(pairs, PART), triton.next_power_of_2(experts)
    counts = torch.empty(parts, experts, dtype=torch.int32, device=device)
    _count[(parts,)](choices, counts, pairs, experts, all_experts, PART, OTHERS // 4, num_warps=8)
    grid = (triton.cdiv(pairs, PAIRS),)
    _sort[grid](
        choices, counts, rows, of_rows, ends, added, pairs, experts, chosen, parts, adds, all_experts, PART, PAIRS,
        OTHERS, num_warps=4,
    )  # fmt: skip
    return of_rows, rows.view(tokens, chosen), ends
