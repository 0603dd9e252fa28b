"""The file that says a model's folder is complete: .graphpod.json, written last."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphpod_sources.names import whole

NAME = ".graphpod.json"
LARGEST = 16 << 20  # bytes


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the folder; `sha256` where the source states one, or where it was computed."""

    path: str
    bytes: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a complete folder holds. Times are RFC 3339; `used` is the last fetch that asked for it."""

    uri: str
    revision: str
    commit: str
    files: tuple[StoredFile, ...]
    bytes: int
    completed: str
    used: str

    def missing(self, folder: Path) -> list[str]:
        """Paths of files that are absent or have another size."""
        return [file.path for file in self.files if size_of(folder / file.path) != file.bytes]

    def used_now(self) -> "Manifest":
        return replace(self, used=now())


def now() -> str:
    """The time, in RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def size_of(path: Path) -> int | None:
    """Bytes of a regular file; None when there is none."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def read(folder: Path) -> Manifest | None:
    """The manifest of a folder; None when it has none that can be read, and so is not complete."""
    path = folder / NAME
    try:
        if (size := size_of(path)) is None or size > LARGEST:
            return None
        return _manifest(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _manifest(content: Mapping[str, Any]) -> Manifest:
    files = tuple(
        StoredFile(str(file["path"]), whole(file["bytes"]), str(file["sha256"]) if file.get("sha256") else None)
        for file in content["files"]
    )
    texts = {name: str(content[name]) for name in ("uri", "revision", "commit", "completed", "used")}
    return Manifest(files=files, bytes=whole(content["bytes"]), **texts)


def write(folder: Path, manifest: Manifest) -> None:
    """Write it so that it is there whole or not at all, also after a crash of the machine."""
    write_whole(folder / NAME, json.dumps(asdict(manifest), indent=1).encode() + b"\n")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file by a temporary one next to it."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # it may be a named pipe
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
