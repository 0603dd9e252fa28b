"""The copies of the host tier that a pass waits for on the device."""

from graphpod_runtime.cache.host_tier import HostTier
from graphpod_runtime.engine.schedule.batch import Batch, PrefillBatch


def join(tier: HostTier, batch: Batch, *, everything: bool) -> None:
    """The pass of `batch` and all that is launched behind it find the pages of its sequences as copies leave them. A
    graph reads and writes them without asking, so this is in front of its launch. `everything`: pages are written, too,
    that this batch does not have.
    """
    if everything:
        tier.copies.wait_for_all()
    sequences = [chunk.sequence for chunk in batch.chunks] if isinstance(batch, PrefillBatch) else batch.sequences
    if waiting := [sequence for sequence in sequences if sequence.awaits]:
        tier.join([move for sequence in waiting for move in sequence.awaits])
        for sequence in waiting:
            sequence.awaits = []
