"""Ladders: the ascending sizes that are captured. Prefill sizes are tokens, decode sizes are sequences.

The steps are SGLang's schedules, those of prefill up to 16 384 tokens. Unlike there, the maximum itself is on the
prefill ladder too, so that no pass below it is padded further than one step.
"""

from collections.abc import Iterable
from typing import NamedTuple

from graphpod_policy.facts import GIB

Ladder = tuple[int, ...]
Steps = tuple[tuple[int, int, int], ...]

PREFILL_STEPS: Steps = (
    *((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, 16_384, 512)),
    *((18_432, 32_768, 2048), (36_864, 65_536, 4096), (73_728, 131_072, 8192)),
    *((147_456, 262_144, 16_384), (294_912, 524_288, 32_768)),
)
"""(first, last, step) in tokens; beyond the last row the step is 65 536. From 16 384 on, which is the most without
spec.engine.prefillChunk, each doubling has 8 sizes: so the longest ladder has no more sizes than a user's own may have.
"""
PREFILL_STEP_BEYOND = 65_536

DECODE_STEPS: Steps = ((1, 2, 1), (4, 12, 4), (16, 256, 8), (272, 511, 16))
"""(first, last, step) in sequences of one token; beyond the last row the step is 32, from 512."""
DECODE_STEP_BEYOND = 32

VERIFY_STEPS: Steps = ((1, 8, 1), (10, 32, 2), (40, 64, 4), (72, 256, 8))
"""The same in sequences of several draft tokens: a padded sequence costs more. Beyond, the step is 16."""
VERIFY_STEP_BEYOND = 16

CPU_PREFILL_MAX = 256
"""Largest default prefill size on a CPU, in tokens: the recorder brings no speed, so ladders stay short."""
CPU_DECODE: Ladder = (1, 2, 4, 8)
"""Default decode sizes on a CPU, in sequences."""

LATENT_ATTENTION_MAX = 2048
"""Largest default prefill size with latent attention, in tokens."""


PROMPT_LEAST = 2048
"""Tokens that a default prefill ladder reaches, however short contexts are: several prompts fill such a pass, and a GPU
computes about as many tokens a second as in a larger one."""


class MemoryRow(NamedTuple):
    """Default maxima on a GPU with less than `below` bytes: prefill tokens, decode sequences, and decode sequences
    when a layer is split over four devices or more.
    """

    below: float
    prefill: int
    decode: int
    decode_split: int


MEMORY_ROWS: tuple[MemoryRow, ...] = (
    MemoryRow(20 * GIB, 2048, 8, 8),
    MemoryRow(35 * GIB, 2048, 24, 80),
    MemoryRow(60 * GIB, 4096, 32, 160),
    MemoryRow(160 * GIB, 8192, 256, 512),
    MemoryRow(float("inf"), 16384, 512, 512),
)
"""By GPU memory, ascending. Before the GPU is known a plan uses the last row; the engine then removes sizes."""


def memory_row(gpu_memory_bytes: int | None) -> MemoryRow:
    """The row of a GPU with this memory; the largest when it is not known."""
    if gpu_memory_bytes is None:
        return MEMORY_ROWS[-1]
    return next(row for row in MEMORY_ROWS if gpu_memory_bytes < row.below)


def prefill_ladder(maximum: int) -> Ladder:
    """The default prefill ladder up to and including `maximum` tokens."""
    return _scheduled(PREFILL_STEPS, PREFILL_STEP_BEYOND, maximum)


def decode_ladder(maximum: int) -> Ladder:
    """The default decode ladder of a GPU up to and including `maximum` sequences."""
    return _scheduled(DECODE_STEPS, DECODE_STEP_BEYOND, maximum)


def verify_ladder(maximum: int) -> Ladder:
    """The default decode ladder with speculative decoding, up to and including `maximum` sequences."""
    return _scheduled(VERIFY_STEPS, VERIFY_STEP_BEYOND, maximum)


def cpu_decode_ladder(maximum: int) -> Ladder:
    """The default decode ladder on a CPU up to and including `maximum` sequences."""
    return _capped(CPU_DECODE, maximum)


def aligned(sizes: Ladder, multiple: int, maximum: int) -> Ladder:
    """`sizes` rounded up to multiples of `multiple`, each once; above `maximum`, its largest multiple is the last."""
    rounded = {-(-size // multiple) * multiple for size in sizes}
    largest = maximum // multiple * multiple
    if rounded and max(rounded) > maximum and largest:
        rounded.add(largest)
    return tuple(sorted(size for size in rounded if size <= maximum))


def _scheduled(steps: Steps, beyond: int, maximum: int) -> Ladder:
    sizes = [size for first, last, step in steps for size in range(first, last + 1, step)]
    start = sizes[-1] + steps[-1][2]
    beyond_from = -(-start // beyond) * beyond
    return _capped((*sizes, *range(beyond_from, maximum + 1, beyond)), maximum)


def _capped(sizes: Iterable[int], maximum: int) -> Ladder:
    if maximum < 1:
        return ()
    return (*(size for size in sizes if size < maximum), maximum)
