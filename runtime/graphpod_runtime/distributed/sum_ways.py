"""Which way two GPUs sum a message: by its bytes, and by what this machine's links were measured to do."""

import sys
from collections.abc import Callable, Sequence
from enum import Enum

import torch

PUSHED = 256 << 10
"""Bytes of the largest message whose words the GPUs write to each other all at once."""
MEASURED = (1 << 20, 4 << 20, 16 << 20)
"""Bytes of the messages whose times decide between pieces and the backend."""
WORD, ALIGNED = 4, 16
"""Bytes that messages are multiples of: those pushed at once, and those sent in pieces."""
ROWS, ROW_WORDS = 128, 4096
"""Of states to which a sum is added in one launch with the norm, at most: programs of an H100 that all run at a time,
each with a row of words of 32 bits."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ROUNDS, CALLS = 3, 10
_HEAD_START = 2_000_000
"""Cycles, about a millisecond, that the device waits while the host launches all calls of a round."""


class Way(Enum):
    Words = "words"
    """All words at once, without flags."""
    Pieces = "pieces"
    """Piece by piece, with a count of those that have come."""
    Backend = "backend"


def way_of(nbytes: int, dtype: torch.dtype, most: int) -> Way:
    """Of a message. `most`: the bytes of the largest one that goes in pieces."""
    if dtype not in DTYPES:
        return Way.Backend
    if nbytes <= PUSHED and nbytes % WORD == 0:
        return Way.Words
    return Way.Pieces if PUSHED < nbytes <= most and nbytes % ALIGNED == 0 else Way.Backend


def adds_at_once(rows: int, width: int, dtype: torch.dtype) -> bool:
    """Whether a sum is added to states [rows, width], and normalised, in one launch."""
    return dtype in DTYPES[:2] and rows <= ROWS and width % 2 == 0 and width <= 2 * ROW_WORDS


def most_in_pieces(pieces: Sequence[int], backend: Sequence[int]) -> int:
    """Bytes of the largest message that goes in pieces, where MEASURED took so many microseconds each way: less than
    the smallest one of which the backend is faster. If there is none, all go in pieces."""
    slower = [nbytes for nbytes, own, other in zip(MEASURED, pieces, backend, strict=True) if own > other]
    return min(slower) - 1 if slower else sys.maxsize


def microseconds(call: Callable[[], object], meet: Callable[[], object]) -> int:
    """Of one `call` on the device, the least mean of ROUNDS. `meet` returns when the other rank has called it, too."""
    call()
    means = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        meet()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_HEAD_START)
        call()  # When it ends, both GPUs have begun.
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        means.append(begin.elapsed_time(end) * 1e3 / CALLS)
    return round(min(means))
