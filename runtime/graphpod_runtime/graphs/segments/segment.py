"""A segment: one captured stretch. A pool: the memory that the segments of a phase share.

Two kinds exist behind these protocols: `cpu.py` and `cuda.py`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

Calls = tuple[Callable[[], object], ...]
"""What a replay of a segment does, in order."""


class Segment(Protocol):
    """Work is noted between `begin` and `end`. Values computed in between are not valid."""

    def begin(self) -> None: ...

    def end(self) -> Calls:
        """The work, to be done again. It needs the segment no longer."""

    def abort(self) -> None:
        """Ends a capture that failed."""


class Pool(Protocol):
    """Memory of one phase's graphs."""

    def warm(self, code: Callable[[], object]) -> None:
        """Runs `code`, the largest to be captured first, if it must have run once before it can be captured."""

    def capturing(self) -> AbstractContextManager[None]:
        """Where segments of this pool are captured, breaks between them included."""

    def segment(self) -> Segment:
        """A new segment in this pool."""

    def pool_bytes(self) -> int:
        """What the allocator holds for the pool."""

    def driver_bytes(self) -> int:
        """What the graphs take outside the allocator."""

    def verify(self) -> None:
        """AddressChanged when memory that graphs refer to has moved."""


def capture(segment: Segment, code: Callable[[], None]) -> Calls:
    """Captures `code` as one segment; whatever it raises ends the capture first."""
    segment.begin()
    try:
        code()
    except BaseException:
        segment.abort()
        raise
    return segment.end()
