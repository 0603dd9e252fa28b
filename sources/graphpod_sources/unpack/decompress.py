"""The bytes of an archive, decompressed by what its first bytes say, and bounded."""

import gzip
import zlib
from collections.abc import Callable
from typing import BinaryIO, Protocol

import zstandard

from graphpod_sources.names import size
from graphpod_sources.problem import Problem, Reason

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
WINDOW = 1 << 27
"""Most bytes of memory that a zstd frame may ask for: what `zstd -d` allows by default."""
BROKEN = (gzip.BadGzipFile, zlib.error, zstandard.ZstdError, EOFError)


class _Reader(Protocol):
    def read(self, count: int, /) -> bytes: ...


class Bounded:
    """A stream that ends with a `Problem` (BadArchive) once it gave more than `most` bytes. Calls `work` as it goes."""

    def __init__(self, archive: BinaryIO, most: int, where: str, work: Callable[[], None]) -> None:
        head = archive.read(4)
        archive.seek(0)
        if head.startswith(GZIP):
            self._stream: _Reader = gzip.GzipFile(fileobj=archive)
        elif head == ZSTD:
            unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW)
            self._stream = unpacker.stream_reader(archive, read_across_frames=True)
        else:
            self._stream = archive
        self._most, self._where, self._work = most, where, work
        self._given = 0

    def read(self, count: int) -> bytes:
        try:
            chunk = self._stream.read(count)
        except BROKEN as error:
            raise Problem(Reason.BadArchive, f"{self._where}: cannot be decompressed ({error})") from error
        self._given += len(chunk)
        if self._given > self._most:
            raise Problem(
                Reason.BadArchive,
                f"{self._where}: unpacks to more than {size(self._most)}, which no model of its size does",
            )
        self._work()
        return chunk
