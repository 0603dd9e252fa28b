"""Whether a mounted file is another one: a Secret's volume changes by a rename."""

from pathlib import Path

Identity = tuple[int, int, int]
"""Inode, time of change in ns, bytes."""


def identity_of(file: Path) -> Identity | None:
    """What distinguishes one content of the file from another; None without a file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
