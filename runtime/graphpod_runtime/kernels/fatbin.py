"""What GPU code a shared library holds, read from the library itself: no manifest or file name can then be wrong.

nvcc puts one container for each translation unit into the section `.nv_fatbin`. A container holds one image for each
architecture that was asked for, under a header that is never compressed. The format is not documented; the offsets were
read from libraries built by CUDA 13 and agree with those of the open-source readers of CUDA's binaries.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from graphpod_policy import Architecture

SECTION = b".nv_fatbin"
MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")
"""Magic, version, bytes of this header, bytes of the images behind it."""
IMAGE = struct.Struct("<HHIQ12xI")
"""Kind, version, bytes of this header, bytes of the code behind it, and 10 × compute capability."""
PTX, MACHINE_CODE = 1, 2

ELF64 = b"\x7fELF\x02\x01"
SECTIONS_AT, SECTIONS = 40, 58
"""Offsets in the ELF header: where the table of sections is, and its entry size, count and index of names."""
SECTION_ROW = struct.Struct("<I20xQQ")
"""Of a section: name, offset, bytes."""


class UnreadableLibrary(ValueError):
    """Not a shared library of a 64-bit Linux, or one whose GPU code has an unknown form. The message has the file."""


def architectures_of(library: Path) -> tuple[Architecture, ...]:
    """What all of `library`'s GPU code was compiled for, ascending; empty: it holds none. UnreadableLibrary for a file
    that is no such library, OSError for one that cannot be read.
    """
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            units = [set(unit) for unit in _units(content, *_section(content))]
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise UnreadableLibrary(f"{library}: no GPU code can be read: {error}") from error
    # Every unit may be called, so a GPU must run a part of each.
    return tuple(sorted(set.intersection(*units))) if units else ()


def _section(content: mmap.mmap) -> tuple[int, int]:
    """Offsets where the section begins and ends; two equal ones where there is none."""
    if content[: len(ELF64)] != ELF64:
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", content, SECTIONS_AT)
    size, count, names = struct.unpack_from("<HHH", content, SECTIONS)
    rows = [SECTION_ROW.unpack_from(content, table + size * index) for index in range(count)]
    if not rows:
        return 0, 0
    for name, at, length in rows:
        start = rows[names][1] + name
        if content[start : start + len(SECTION) + 1] == SECTION + b"\0":
            return at, at + length
    return 0, 0


def _units(content: mmap.mmap, at: int, end: int) -> Iterator[Iterator[Architecture]]:
    while at < end:
        magic, _, header, length = CONTAINER.unpack_from(content, at)
        stop = at + header + length
        if magic != MAGIC or not header or stop > end:
            raise ValueError(f"no container of GPU code begins at {at:#x}")
        yield _images(content, at + header, stop)
        at = -(-stop // 8) * 8


def _images(content: mmap.mmap, at: int, end: int) -> Iterator[Architecture]:
    while at < end:
        kind, _, header, length, number = IMAGE.unpack_from(content, at)
        if kind not in (PTX, MACHINE_CODE) or not header:
            raise ValueError(f"an image of kind {kind} at {at:#x}")
        yield Architecture(divmod(number, 10), kind == PTX)
        at += header + length
