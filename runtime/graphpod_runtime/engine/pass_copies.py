"""The copies of the host tier that a pass waits for on the device."""

from collections.abc import Collection

from graphpod_runtime.cache.host_tier import HostTier
from graphpod_runtime.engine.schedule.batch import Batch, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence


def join(tier: HostTier, batch: Batch, page_size: int, zeroed: Collection[int], *, everything: bool) -> None:
    """The pass of `batch` and all that is launched behind it find the pages of its sequences as copies leave them, and
    those that are `zeroed` in front of it. A graph reads and writes them without asking, so this is in front of its
    launch. `everything`: it writes other pages, too.
    """
    if everything or tier.half_done:
        tier.join_all()
    moves = tier.awaited(list(zeroed)) if zeroed else []
    for sequence, pages in reached(batch, page_size):
        if sequence.awaits:
            moves += [move for first, move in sequence.awaits if first < pages]
            sequence.awaits = [(first, move) for first, move in sequence.awaits if first >= pages]
    tier.join(moves)


def reached(batch: Batch, page_size: int) -> list[tuple[Sequence, int]]:
    """The sequences of a pass, and how many of its pages it may use."""
    if isinstance(batch, PrefillBatch):
        return [(chunk.sequence, -(-chunk.end // page_size)) for chunk in batch.chunks]
    return [(one, len(one.pages)) for one in batch.sequences]
