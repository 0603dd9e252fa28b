"""Which files of a folder are finished before the folder is: a line each in `.partial/finished`, by their identity."""

import json
from pathlib import Path

from graphpod_sources.listing import RemoteFile
from graphpod_sources.manifest import size_of
from graphpod_sources.names import whole
from graphpod_sources.transfer.part import FOLDER, Part, writing

LARGEST = 64 << 20  # bytes
GONE = (-1, "")
"""The row of a file that is no longer there."""


class Finished:
    """Files that were verified. A line is written before the file gets its name: a kill between both costs nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / FOLDER / "finished"
        self._rows: dict[str, tuple[int, str]] = {}
        lines: list[bytes] = []
        if (size := size_of(self._path)) is None:
            self._path.unlink(missing_ok=True)  # it may be a named pipe
        elif size <= LARGEST:
            lines = self._path.read_bytes().split(b"\n")[:-1]
        for line in lines:
            try:
                path, count, identity = json.loads(line)
                self._rows[str(path)] = whole(count), str(identity)
            except (ValueError, TypeError, RecursionError):
                continue  # a line that a kill cut, or that somebody else wrote; that file is fetched again

    def has(self, file: RemoteFile) -> bool:
        """Whether the file is in place with this content; one that only lacks its name gets it."""
        row = self._rows.get(file.path)
        if row is None or row == GONE:
            return False
        if file.identity and row[1] == file.identity and file.size in (None, row[0]):
            part = Part(self._folder, file)
            if size_of(part.path) == row[0] and part.is_of_this_file():
                part.place()
            if size_of(part.target) == row[0]:
                return True
        # It is fetched again. Until it is whole, its part may have its size already: the row must not speak for that.
        self.add(file.path, *GONE)
        return False

    def add(self, path: str, count: int, identity: str) -> None:
        """Remember a verified file, or a part that is about to become one."""
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps([path, count, identity]) + "\n")
        self._rows[path] = count, identity
