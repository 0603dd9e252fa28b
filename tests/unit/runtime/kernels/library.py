"""Shared libraries that hold GPU code, or rather its headers, for tests of what reads them."""

import struct

from graphpod_policy import Architecture

RECORDED = bytes.fromhex(
    "0200010140000000b893020000000000b593020000000000080001005a0000000000000000000000118010000000000000000000000000005089080000000000"
)
"""Header of the first image in a library that nvcc 13 built for sm_90a: its code is 168 888 bytes, compressed."""


def image(code: Architecture) -> bytes:
    """One image with four bytes of code under the recorded header."""
    header = bytearray(RECORDED)
    struct.pack_into("<H", header, 0, 1 if code.ptx else 2)
    struct.pack_into("<Q", header, 8, 8)
    struct.pack_into("<I", header, 28, 10 * code.capability[0] + code.capability[1])
    return bytes(header) + b"codecode"


def unit(*codes: Architecture) -> bytes:
    """The container of one translation unit."""
    images = b"".join(map(image, codes))
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(images)) + images


def library(*units: bytes) -> bytes:
    """A library of these containers; none: one without a section for GPU code."""
    names, body = b"\0.nv_fatbin\0.shstrtab\0", b"".join(units)
    rows = [(1, 64, len(body))] if units else []
    rows.append((12, 64 + len(body), len(names)))
    table = b"".join(struct.pack("<I20xQQ24x", *row) for row in [(0, 0, 0), *rows])
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(body) + len(names), 0, 64, 0, 0, 64, len(rows) + 1, len(rows)
    )
    return head + body + names + table
