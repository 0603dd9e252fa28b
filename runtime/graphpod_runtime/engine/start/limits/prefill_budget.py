"""How many prompt tokens go between two decode passes where `spec.engine.prefillBudget` is Auto: as many as a decode
waits for at most twice its own time, by the clock of this start.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence

WAIT = 2.0
"""Times of a decode pass that the next one may wait for prefill."""
LEAST_BUDGET = 16
"""Tokens. Smaller passes would take longer for the same prompt and give a decode little."""


def prefill_budget(decode: float, sizes: Sequence[int], seconds: Callable[[int], float], chunk: int) -> int:
    """Tokens of the largest pass that takes at most `WAIT` times `decode` seconds: `seconds` is the time of a pass of
    one of `sizes`, ascending. The smallest size where even that takes longer, `chunk` where none does. It looks at as
    few sizes as halving takes, since a pass of more tokens takes no less time.
    """
    longer = bisect_right(sizes, WAIT * decode, key=seconds)
    return chunk if longer == len(sizes) else min(chunk, sizes[max(0, longer - 1)])


def seconds_of(run: Callable[[], object], wait: Callable[[], object]) -> float:
    """Of the second of two runs; `wait` returns when the device has done what it was given."""
    for _ in range(2):
        wait()
        began = time.perf_counter()
        run()
        wait()
    return time.perf_counter() - began
