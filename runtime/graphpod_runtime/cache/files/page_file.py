"""A page in a file: a header with its key and a checksum, and its bytes.

A file appears whole, by a rename, and is never written again. It may still be cut short or altered by what happens to
the disk, so a reader believes only the checksum. All paths are names in an open folder.
"""

import os
import stat
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress

HEADER = struct.Struct("<8sQ32sI12x")
"""Magic and version, bytes of the page, key, checksum of the page."""
MAGIC = b"gpodkv01"
UNFINISHED = ".new"
"""How the name of a file that is being written ends."""
OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A symbolic link is not followed, and a fifo blocks no thread."""


class BadPage(Exception):
    """What has the name of a page is none: cut short, altered, of another key, or no plain file."""


def file_bytes(page_bytes: int) -> int:
    """Of a page on the disk."""
    return HEADER.size + page_bytes


def write(folder: int, name: str, key: bytes, content: memoryview) -> None:
    """The page becomes visible when all of it is written; OSError leaves no part of it."""
    unfinished = name + UNFINISHED
    header = HEADER.pack(MAGIC, len(content), key, zlib.crc32(content))
    file = os.open(unfinished, OPEN | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        try:
            _whole(lambda parts, _: os.writev(file, parts), [memoryview(header), content])
        finally:
            os.close(file)
        os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise


def read(folder: int, name: str, key: bytes, into: memoryview) -> None:
    """Fills `into` with the page; BadPage or OSError, and `into` may hold anything."""
    file = os.open(name, OPEN | os.O_RDONLY, dir_fd=folder)
    try:
        there, header = os.fstat(file), memoryview(bytearray(HEADER.size))
        if not stat.S_ISREG(there.st_mode) or there.st_size != file_bytes(len(into)):
            raise BadPage(f"{there.st_size} bytes, of type {stat.S_IFMT(there.st_mode):o}")
        _whole(lambda parts, at: os.preadv(file, parts, at), [header, into])
    finally:
        os.close(file)
    if bytes(header) != HEADER.pack(MAGIC, len(into), key, zlib.crc32(into)):
        raise BadPage("its header or its checksum does not fit")


def _whole(move: Callable[[list[memoryview], int], int], parts: list[memoryview]) -> None:
    """Calls `move` with what is left of `parts`, and where that begins, until nothing is."""
    done = 0
    while parts:
        if not (count := move(parts, done)):
            raise BadPage("it ends too early")
        done += count
        while parts and count >= len(parts[0]):
            count -= len(parts.pop(0))
        if parts:
            parts[0] = parts[0][count:]
