"""Which graph runs a batch, or the one reason why none does."""

from bisect import bisect_left
from dataclasses import dataclass

from graphpod_policy import FallbackReason, Phase, Policy
from graphpod_policy.rules import padding_refused


@dataclass(frozen=True, slots=True)
class Ladder:
    """What a phase can run now. `planned` and `captured` are ascending sizes; `ready` latches after warm-up."""

    phase: Phase
    policy: Policy
    planned: tuple[int, ...]
    captured: tuple[int, ...]
    ready: bool


def dispatch(ladder: Ladder, count: int) -> int | FallbackReason:
    """The captured size that runs `count` real rows, or why they run eagerly. Gates are asked in this order."""
    if ladder.policy is Policy.Disabled:
        return FallbackReason.Disabled
    if not ladder.ready:
        return FallbackReason.WarmingUp
    if not ladder.planned or count > ladder.planned[-1]:
        return FallbackReason.SizeAboveLadder
    at = bisect_left(ladder.captured, count)
    if at == len(ladder.captured):
        return FallbackReason.NotCaptured
    size = ladder.captured[at]
    if ladder.phase is Phase.Prefill and padding_refused(count, size):
        return FallbackReason.PaddingGate
    return size
