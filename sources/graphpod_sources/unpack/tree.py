"""Members of tar archives as plain files of a folder.

Only files that can be of a model are written. There is never a link on disk, so no name can lead through one: a link
among a model's files becomes the file that it names. Refused (BadArchive): names that are absolute or lead out, links
that do, devices among a model's files, sparse files, too many members, too many bytes, oversized headers.
"""

import os
import posixpath
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

from graphpod_sources.names import safe, shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.selection import wanted
from graphpod_sources.transfer.part import writing
from graphpod_sources.unpack.decompress import Bounded

MOST_MEMBERS = 100_000
RATIO, LEAST = 100, 64 << 20
"""An archive may unpack to so many times its size, or to so many bytes."""
LONGEST_HEADER = 1 << 20  # bytes
CHUNK = 1 << 20
MOST_HOPS = 8
MOST_SWEEPS = 2000
"""Folders that layers may delete: for each, all names are looked at."""
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class _Header(tarfile.TarInfo):
    """A header with bounds: tarfile reads extended headers into memory, as long as they say they are."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in EXTENDED and header.size > LONGEST_HEADER):
            raise Problem(Reason.BadArchive, f"a header of the archive states {header.size} bytes")
        return header


class Tree:
    """What archives leave in `root`, one after the other as layers of an image are.

    `names`: all files, written or not.
    """

    def __init__(self, root: Path, where: str, work: Callable[[], None]) -> None:
        self._root, self._where, self._work = root, where, work
        self.names: set[str] = set()
        self._links: dict[str, str] = {}
        self._members = self._sweeps = 0

    def add(self, archive: Path, *, layer: bool) -> None:
        """Unpack an archive. `layer`: it may delete files of those before it, and links of a whole system are in it."""
        most = max(LEAST, RATIO * archive.stat().st_size)
        try:
            with archive.open("rb") as content:
                stream = Bounded(content, most, self._where, self._work)
                with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK, tarinfo=_Header) as tar:  # type: ignore[call-overload]
                    for member in tar:
                        self._member(tar, member, layer)
                        tar.members.clear()
        except (tarfile.TarError, UnicodeError, ValueError, OverflowError, RecursionError) as error:
            raise Problem(Reason.BadArchive, f"{self._where}: is no whole tar archive ({error})") from error
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise Problem(Reason.BadArchive, f"{self._where}: has a file and a folder of one name") from error

    def put(self, file: Path, name: str) -> None:
        """A layer that is one file."""
        self.names.add(name)
        if wanted(name):
            with writing(self._root):
                target = self._root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                os.link(file, target)

    def _member(self, tar: tarfile.TarFile, member: tarfile.TarInfo, layer: bool) -> None:
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise Problem(Reason.BadArchive, f"{self._where}: has more than {MOST_MEMBERS} members")
        name = member.name.rstrip("/")
        while name.startswith("./"):
            name = name[2:]
        if name in ("", ".") or (member.isdir() and not name.startswith("/") and ".." not in name.split("/")):
            return
        last = posixpath.basename(name)
        if layer and last.startswith(WHITEOUT):
            self._delete(posixpath.dirname(name), last)
            return
        if not wanted(name):
            if name.startswith("/") or ".." in name.split("/"):
                safe(name, self._where)
            self.names.add(name)
            return
        safe(name, self._where)
        self.names.add(name)
        if member.issparse() or not (member.isreg() or member.islnk() or member.issym()):
            raise Problem(Reason.BadArchive, f"{self._where}: {shown(name)} is no regular file")
        self._links.pop(name, None)
        if member.isreg():
            self._write(tar, member, self._root / name)
        else:
            self._links[name] = self._target(name, member, layer)

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
        source = tar.extractfile(member)
        assert source is not None  # of a regular file there is one
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with writing(target), os.fdopen(os.open(target, flags, 0o644), "wb") as file:
            shutil.copyfileobj(source, file, CHUNK)
            file.flush()
            os.fsync(file.fileno())

    def _target(self, name: str, member: tarfile.TarInfo, layer: bool) -> str:
        """What a link names, from the archive's top."""
        named = member.linkname
        if named.startswith("/") and layer:
            path = posixpath.normpath(named.lstrip("/"))
        elif member.islnk():
            path = posixpath.normpath(named)
        else:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), named))
        if path.startswith(("/", "../")) or path == ".." or (named.startswith("/") and not layer):
            raise Problem(Reason.BadArchive, f"{self._where}: the link {shown(name)} leads out, to {shown(named)}")
        return path

    def _delete(self, folder: str, last: str) -> None:
        """A layer's mark that a file, or all of a folder, of the layers below is gone."""
        if ".." in folder.split("/") or folder.startswith("/"):
            safe(folder, self._where)
        path = folder if last == OPAQUE else posixpath.join(folder, last.removeprefix(WHITEOUT))
        gone = {path} & self.names
        if not gone:
            self._sweeps += 1
            if self._sweeps > MOST_SWEEPS:
                raise Problem(Reason.BadArchive, f"{self._where}: deletes more than {MOST_SWEEPS} folders")
            gone = {name for name in self.names if not path or name.startswith(f"{path}/")}
        for name in gone:
            self.names.discard(name)
            self._links.pop(name, None)
            (self._root / name).unlink(missing_ok=True)

    def link(self, names: set[str]) -> None:
        """Make files of those links that are among `names`. Raises `Problem` for one that leads to no file."""
        for name in sorted(names & self._links.keys()):
            at = name
            for _ in range(MOST_HOPS):
                at = self._links.get(at, at)
            source, target = self._root / at, self._root / name
            if at in self._links or not source.is_file():
                raise Problem(Reason.BadArchive, f"{self._where}: the link {shown(name)} names no file of the archive")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            os.link(source, target)


def model_folder(names: set[str], where: str) -> str:
    """The folder of the archive that holds the model, empty for its top: the one with weights and a config.json.

    Raises `Problem` (NoWeights) where several models are.
    """
    holding = {posixpath.dirname(name) for name in names if name.endswith((".safetensors", ".gguf"))}
    described = {folder for folder in holding if posixpath.join(folder, "config.json") in names} or holding
    if not described:  # weights of another kind, which the selection names
        described = {posixpath.dirname(name) for name in names if posixpath.basename(name) == "config.json"} or {""}
    shallow = min(folder.count("/") + bool(folder) for folder in described)
    top = sorted(folder for folder in described if folder.count("/") + bool(folder) == shallow)
    if len(top) > 1:
        raise Problem(
            Reason.NoWeights,
            f"{where}: holds several models, in {', '.join(shown(folder) for folder in top[:5])}",
            next_step="publish one model in each archive",
        )
    return top[0]
