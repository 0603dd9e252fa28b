"""Ladders: the ascending sizes that are captured. Prefill sizes are tokens, decode sizes are sequences.

The prefill steps are SGLang's schedule (4..32 by 4, 48..256 by 16, 288..512 by 32, 576..1024 by 64,
1280..4096 by 256, then by 512); unlike there, the maximum itself is always on the ladder, so no pass below
it is padded further than one step.
"""

from collections.abc import Iterable

Ladder = tuple[int, ...]

PREFILL_STEPS: tuple[tuple[int, int, int], ...] = (
    (4, 32, 4),
    (48, 256, 16),
    (288, 512, 32),
    (576, 1024, 64),
    (1280, 4096, 256),
)
"""(first, last, step) in tokens; beyond the last row the step is 512."""

CPU_PREFILL_MAX = 256
"""Largest default prefill size on a CPU, in tokens: the recorder brings no speed, so ladders stay short."""
CPU_DECODE = (1, 2, 4, 8)
"""Default decode sizes on a CPU, in sequences."""


def prefill_ladder(maximum: int) -> Ladder:
    """The default prefill ladder up to and including `maximum` tokens."""
    sizes = [size for first, last, step in PREFILL_STEPS for size in range(first, last + 1, step)]
    sizes += range(4608, maximum + 1, 512)
    return _capped(sizes, maximum)


def cpu_decode_ladder(maximum: int) -> Ladder:
    """The default decode ladder on a CPU up to and including `maximum` sequences."""
    return _capped(CPU_DECODE, maximum)


def cuda_decode_ladder(maximum: int) -> Ladder:
    """The default decode ladder on a GPU: 1, 2, 4, 8, 12, by 8 to 256, by 16 to 511, then by 32."""
    return _capped((1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, maximum + 1, 32)), maximum)


def _capped(sizes: Iterable[int], maximum: int) -> Ladder:
    if maximum < 1:
        return ()
    return (*(size for size in sizes if size < maximum), maximum)
