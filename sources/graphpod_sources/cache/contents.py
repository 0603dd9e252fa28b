"""What a cache holds: our folders with their sizes and last use, and what others put there."""

import os
import stat
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
    folders = [folder for folder in sorted(root.iterdir()) if folder.is_dir() and not folder.is_symlink()]
    return [Kept(f.name, occupied(f), _used(f)) for f in folders if not f.name.startswith(".")]


def _used(folder: Path) -> str:
    """When the folder was used last; FOREIGN for one that is not ours, or that may not be read, as lost+found."""
    whole = manifest.read(folder)
    if whole is not None:
        return whole.used
    try:
        state = (folder / FOLDER).lstat()
    except OSError:
        return FOREIGN
    if not stat.S_ISDIR(state.st_mode):
        return FOREIGN
    return datetime.fromtimestamp(state.st_mtime, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def occupied(folder: Path) -> int:
    """Bytes that files below a folder take on disk; a sparse file takes what is written of it."""
    return sum(_blocks(Path(place) / name) for place, _, names in os.walk(folder) for name in names)


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:  # another fetch has just given it its name
        return 0
