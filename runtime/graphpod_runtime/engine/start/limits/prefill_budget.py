"""How many prompt tokens go between two decode passes where `spec.engine.prefillBudget` is Auto: as many as a decode
waits for at most twice its own time, by the clock of this start.
"""

import time
from collections.abc import Callable, Iterable

WAIT = 2.0
"""Times of a decode pass that the next one may wait for prefill."""
LEAST_BUDGET = 16
"""Tokens. Smaller passes would take longer for the same prompt and give a decode little."""


def prefill_budget(decode: float, prefill: Iterable[tuple[int, float]], chunk: int) -> int:
    """Tokens of the largest pass that takes at most `WAIT` times `decode` seconds: `prefill` is sizes, ascending, and
    their seconds, read until one takes longer. The smallest size where even that does, `chunk` where none does.
    """
    largest = None
    for size, seconds in prefill:
        if seconds > WAIT * decode:
            return min(chunk, largest or size)
        largest = size
    return chunk


def seconds_of(run: Callable[[], object], wait: Callable[[], object]) -> float:
    """Of the second of two runs; `wait` returns when the device has done what it was given."""
    for _ in range(2):
        wait()
        began = time.perf_counter()
        run()
        wait()
    return time.perf_counter() - began
