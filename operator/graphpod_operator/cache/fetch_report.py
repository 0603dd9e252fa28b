"""What the program that downloads weights reports: at its admin port while it runs, in its termination message after.

Anybody may answer at that port or end a pod with any text, so what is no such report counts as none.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from graphpod_operator.cache import written_text

Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Word = Annotated[str, msgspec.Meta(max_length=64)]


class FetchReport(msgspec.Struct, frozen=True, rename="camel"):
    """One report. Sizes in bytes, times in seconds; `commit` is the revision or digest that was resolved."""

    phase: Word
    commit: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    done: Bytes = msgspec.field(name="bytes", default=0)
    total_bytes: Bytes | None = None
    bytes_per_second: Bytes = 0
    seconds_left: Count | None = None
    files: Count = 0
    total_files: Count | None = None
    reason: Word | None = None
    message: Annotated[str, msgspec.Meta(max_length=4096)] | None = None

    @classmethod
    def read(cls, text: bytes | str) -> FetchReport | None:
        """The report in a text, or None."""
        return written_text.read(text, cls)
