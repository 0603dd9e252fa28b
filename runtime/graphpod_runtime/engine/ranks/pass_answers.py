"""What the last stage of a pipeline answers the first rank of a pass: decided once, where the pass is launched first.

The order carries it to all ranks, so what sends an answer and what takes it cannot differ.
"""

from collections.abc import Sequence as List
from enum import StrEnum

from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence


class PassAnswer(StrEnum):
    """Of one pass."""

    Nothing = "Nothing"
    """No sequence gets a token of it."""
    Tokens = "Tokens"
    """The likeliest tokens, behind the pass: all of them are greedy."""
    Logits = "Logits"
    """What tokens are chosen from, behind the pass."""
    Within = "Within"
    """All that the head gives, while the pass is launched: prompts are scored or pooled."""


def answer_of(batch: Batch) -> PassAnswer:
    """What the first rank needs of `batch`, by how its requests choose."""
    if isinstance(batch, PrefillBatch) and (batch.scores_prompt or batch.pools):
        return PassAnswer.Within
    if not (sequences := yielding(batch)):
        return PassAnswer.Nothing
    return PassAnswer.Tokens if all(map(_takes_the_likeliest, sequences)) else PassAnswer.Logits


def _takes_the_likeliest(one: Sequence) -> bool:
    plain = one.sampling.greedy and not one.sampling.processing.changes
    return plain and one.grammar is None and one.wants.answer is None


def yielding(batch: Batch) -> tuple[Sequence, ...]:
    """The sequences that get a token of `batch`."""
    if isinstance(batch, DecodeBatch):
        return batch.sequences
    return tuple(chunk.sequence for chunk in batch.chunks if chunk.last)


def ends_of(batch: Batch) -> List[int]:
    """The tokens of each of these that the pass has read."""
    if isinstance(batch, DecodeBatch):
        return batch.ends
    return [chunk.end for chunk in batch.chunks if chunk.last]
