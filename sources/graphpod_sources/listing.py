"""What a source has: its files, and the version that they are."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

MOST_FILES = 20_000
"""Files of one model; the largest published ones have some hundreds."""


class Packing(StrEnum):
    """How the model lies in the files."""

    Files = "Files"
    Archive = "Archive"
    """One tar archive."""
    Layers = "Layers"
    """Layers of a container image or artifact, lowest first."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a source.

    `path` is where it goes below the model's folder, `address` what the source calls it. `size` in bytes is None only
    where the source does not say. `ranges`: whether a read may begin inside it. `title` is the name of the one file
    that a layer is.
    """

    path: str
    size: int | None
    address: str
    sha256: str | None = None
    git_oid: str | None = None
    """SHA-1 of a git blob, by which a hub names small files."""
    etag: str | None = None
    ranges: bool = True
    title: str = ""

    @property
    def identity(self) -> str:
        """Equal for equal content; empty where the source has no name for it, and then nothing is resumed."""
        if self.sha256:
            return f"sha256:{self.sha256}"
        return f"git:{self.git_oid}" if self.git_oid else self.etag or ""


@dataclass(frozen=True, slots=True)
class Listing:
    """All that a source has at one version. `commit` is a commit, a digest or an entity tag."""

    commit: str
    files: tuple[RemoteFile, ...]
    packing: Packing = Packing.Files


class Source(Protocol):
    """One model at its source. Methods raise `Problem`; `read` is called from many threads."""

    def listing(self) -> Listing:
        """What there is now."""

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[bytes | memoryview]:
        """Bytes `start` to before `end` (None: to its end) as they come, never more.

        A chunk is valid until the next one.
        """
