"""What a cache holds: our folders with their sizes and last use, and what others put there."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from graphpod_sources import manifest
from graphpod_sources.transfer.part import FOLDER

FOREIGN = ""
"""Last use of a folder that is not ours."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder of the cache. `used` is RFC 3339; FOREIGN of a folder that graphpod-fetch did not make."""

    name: str
    bytes: int
    used: str

    @property
    def ours(self) -> bool:
        return self.used != FOREIGN


def contents(root: Path) -> list[Kept]:
    """All folders of a cache. A folder is ours by its manifest, or by the parts of an unfinished download."""
    found = []
    for folder in sorted(root.iterdir()):
        if folder.is_symlink() or not folder.is_dir() or folder.name.startswith("."):
            continue
        whole, parts = manifest.read(folder), folder / FOLDER
        used = FOREIGN
        if whole is not None:
            used = whole.used
        elif parts.is_dir() and not parts.is_symlink():
            changed = datetime.fromtimestamp(parts.stat().st_mtime, UTC)
            used = changed.isoformat(timespec="seconds").replace("+00:00", "Z")
        found.append(Kept(folder.name, occupied(folder), used))
    return found


def occupied(folder: Path) -> int:
    """Bytes that files below a folder take on disk; a sparse file takes what is written of it."""
    return sum(os.lstat(path).st_blocks * 512 for path in _files(folder))


def _files(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names)  # noqa: PTH118 (a walk of many files)
