"""A segment: one captured stretch. A pool: the memory that the segments of a phase share.

Two kinds exist behind these protocols: `cpu.py` and `cuda.py`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Segment(Protocol):
    """Work is noted between `begin` and `end` and done by `replay`. Values computed in between are not valid."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def abort(self) -> None:
        """Ends a capture that failed; the segment cannot be replayed."""

    def replay(self) -> None: ...


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


def capture(segment: Segment, code: Callable[[], None]) -> None:
    """Captures `code` as one segment; whatever it raises ends the capture first."""
    segment.begin()
    try:
        code()
    except BaseException:
        segment.abort()
        raise
    segment.end()
