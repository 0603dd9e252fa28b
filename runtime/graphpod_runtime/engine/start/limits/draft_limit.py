"""Up to how many sequences a decode pass verifies drafts where `spec.engine.speculative.maxBatch` is Auto, by the clock
of this start.
"""

from collections.abc import Callable, Iterable

PAYS = 1.25
"""Times of a pass without drafts that one with looked-up drafts may take: it pays if they bring 0.25 tokens."""
PAYS_FOR_A_MODEL = 2.0
"""The same with drafts of a model, their own time included: it pays if they bring one token more."""


def draft_limit(
    sizes: Iterable[int],
    width: int,
    seconds: Callable[[int], float],
    pays: float = PAYS,
    drafting: Callable[[int], float] = lambda sequences: 0.0,
) -> int:
    """The largest batch, of those that fill a graph of `sizes` rows, ascending, whose pass over `width` rows a sequence
    takes at most `pays` times the pass without drafts; at least 1, because the service wants drafts. `seconds` is the
    time of the graph of so many rows, `drafting` that of the drafts of so many sequences. Larger batches are not looked
    at once one does not pay.
    """
    times, most = dict[int, float](), 1
    for size in sizes:
        times[size] = seconds(size)
        batch = size // width
        plain = times[min(other for other in times if other >= batch)]
        if times[size] + drafting(batch) > pays * plain:
            break
        most = max(most, batch)
    return most
