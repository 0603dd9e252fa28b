"""file://: a folder of this machine, for use without Kubernetes and in tests."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from graphpod_sources.listing import MOST_FILES, Listing, RemoteFile
from graphpod_sources.names import safe, shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.selection import wanted
from graphpod_sources.uri import ModelUri

CHUNK = 1 << 20


class Local:
    """Regular files below a folder, or what links to files say. Links to folders are not followed. What else could be
    of a model by its name is refused: a named pipe would let its reader wait for ever."""

    def __init__(self, uri: ModelUri) -> None:
        self._uri, self._folder = uri, Path(uri.path)

    def listing(self) -> Listing:
        if not self._folder.is_dir():
            raise Problem(Reason.NotFound, f"{self._uri.shown}: {self._folder} is no folder")
        files: list[RemoteFile] = []
        try:
            for place, _, names in os.walk(self._folder):
                for path in (Path(place) / name for name in names):
                    if wanted(path.name) and path.exists() and not path.is_file():
                        raise Problem(Reason.BadArchive, f"{self._uri.shown}: {shown(str(path))} is no regular file")
                    if path.is_file() and not path.name.startswith("."):
                        state = path.stat()
                        below = safe(path.relative_to(self._folder).as_posix(), self._uri.shown)
                        tag = f"{state.st_size}-{state.st_mtime_ns}"
                        files.append(RemoteFile(below, state.st_size, str(path), etag=tag))
                if len(files) > MOST_FILES:
                    raise Problem(Reason.BadUri, f"{self._uri.shown}: has more than {MOST_FILES} files")
        except OSError as error:
            raise Problem(Reason.Unauthorized, f"{error.filename}: {error.strerror}") from error
        rows = sorted(f"{file.path}\0{file.etag}\n" for file in files)
        return Listing(f"sha256:{hashlib.sha256(''.join(rows).encode()).hexdigest()}", tuple(files))

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[bytes]:
        left = (file.size or 0) - start if end is None else end - start
        try:
            with Path(file.address).open("rb") as content:
                content.seek(start)
                while left > 0 and (chunk := content.read(min(CHUNK, left))):
                    left -= len(chunk)
                    yield chunk
        except OSError as error:
            raise Problem(Reason.NotFound, f"{file.address}: {error.strerror}") from error
