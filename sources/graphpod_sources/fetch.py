"""One model from its source into one folder: the order of things, and what makes the folder complete."""

import shutil
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from graphpod_sources import manifest
from graphpod_sources.cache.lock import Lock
from graphpod_sources.cache.room import Room
from graphpod_sources.conversion import convert
from graphpod_sources.listing import Listing, Packing, RemoteFile, Source
from graphpod_sources.manifest import Manifest, StoredFile
from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.progress import Phase, Progress
from graphpod_sources.selection import (
    CONFIG,
    GGUF,
    INDEX,
    LARGEST_CONFIG,
    check_config,
    check_index,
    check_sizes,
    is_weights,
    selected,
    wanted,
)
from graphpod_sources.transfer.download import Download
from graphpod_sources.transfer.finished import Finished
from graphpod_sources.transfer.part import FOLDER, writing
from graphpod_sources.transfer.patience import Patience
from graphpod_sources.unpack.tree import Tree, model_folder
from graphpod_sources.uri import ModelUri

PACKED, TREE = "packed", "tree"


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted: `uri` into the folder `name` of the cache `root`, which may hold `size` bytes."""

    uri: ModelUri
    root: Path
    name: str
    include: Sequence[str] = ()
    stall_seconds: float = 120.0
    size: int | None = None
    keep: Collection[str] = ()

    @property
    def folder(self) -> Path:
        return self.root / self.name


def fetch(request: Request, source: Source, progress: Progress, report: Callable[[str], None] = print) -> Manifest:
    """Make the folder complete and return its manifest. Raises `Problem`.

    A folder that is complete is looked at and left; one that lost files gets those back. Everything that was fetched
    stays, whatever ends this.
    """
    lock = Lock(request.root, request.name)
    try:
        if not lock.take():
            progress.enter(Phase.Waiting)
            report(f"another process fetches {request.name}: waiting for it")
            lock.wait(sleep)
            progress.enter(Phase.Resolving)
        there = _complete(request)
        if there is None:
            there = _Fetch(request, source, progress, report).run()
        else:
            progress.resolved(there.commit, there.bytes, len(there.files))
            progress.found(there.bytes, len(there.files))
            there = there.used_now()
            manifest.write(request.folder, there)
        progress.complete()
        return there
    except OSError as error:
        step = "look at the claim that spec.model.cache names, and at who may write there"
        where = error.filename or request.folder
        raise Problem(Reason.ServerError, f"{where}: {error.strerror or error}", next_step=step) from error
    finally:
        lock.release()


def _complete(request: Request) -> Manifest | None:
    """The manifest of a folder that is complete. Raises `Problem` (BadUri) for a folder of another model or owner."""
    folder, parts = request.folder, request.folder / FOLDER
    found = manifest.read(folder)
    if found is None:
        if folder.exists() and not parts.is_dir() and not (folder / manifest.NAME).exists() and any(folder.iterdir()):
            raise _other(request, "files that graphpod-fetch did not put there")
        return None
    if found.uri != request.uri.text:
        raise _other(request, shown(found.uri.partition("?")[0]))
    missing = set(found.missing(folder))
    if not missing:
        shutil.rmtree(parts, ignore_errors=True)  # of a run that was killed right after its manifest
        return found
    finished = Finished(folder)
    for file in found.files:
        if file.path not in missing and file.sha256:
            finished.add(file.path, file.bytes, f"sha256:{file.sha256}")
    # No pod must take it for complete while it is repaired.
    (folder / manifest.NAME).unlink()
    return None


def _other(request: Request, what: str) -> Problem:
    return Problem(
        Reason.BadUri,
        f"{request.folder} holds {what}, and {request.uri.shown} is to be put there",
        next_step="use another --folder",
    )


class _Fetch:
    """One run, up to a complete folder."""

    def __init__(self, request: Request, source: Source, progress: Progress, report: Callable[[str], None]) -> None:
        self._request, self._source, self._progress, self._report = request, source, progress, report
        self._folder, self._parts = request.folder, request.folder / FOLDER
        self._where = request.uri.shown
        self._include = request.include or ([request.uri.file] if request.uri.file else ())
        self._room = Room(request.root, request.name, request.size, request.keep)
        self._patience = Patience(request.stall_seconds, progress, threading.Event())

    def run(self) -> Manifest:
        listing = self._patience.call(self._source.listing)
        with writing(self._parts):
            self._parts.mkdir(parents=True, exist_ok=True)
        stored = self._files(listing) if listing.packing is Packing.Files else self._packed(listing)
        ggufs = [file.path for file in stored if file.path.endswith(GGUF)]
        if ggufs and not any(is_weights(file.path) and not file.path.endswith(GGUF) for file in stored):
            stored = self._converted(ggufs[0])
        now, count = manifest.now(), sum(file.bytes for file in stored)
        whole = Manifest(
            self._request.uri.text, self._request.uri.revision, listing.commit, tuple(stored), count, now, now
        )
        self._remove_others({file.path for file in stored})
        with writing(self._parts):
            manifest.sync_folder(self._folder)
            manifest.write(self._folder, whole)
        shutil.rmtree(self._parts)
        return whole

    def _files(self, listing: Listing) -> list[StoredFile]:
        """Files as they are: texts first, since a config.json can be reason enough to fetch no weights."""
        by_name = {file.path: file for file in listing.files}
        if len(by_name) != len(listing.files):
            raise Problem(Reason.BadArchive, f"{self._where}: lists one name twice")
        names = selected(list(by_name), self._include, self._where)
        files = [by_name[name] for name in names]
        check_sizes(((file.path, file.size) for file in files), self._where)
        download = self._download(self._folder)
        self._start(listing, files, download)
        texts = [file for file in files if not is_weights(file.path)]
        sums = download.run(texts)
        self._check(self._folder, set(names))
        sums |= download.run([file for file in files if is_weights(file.path)])
        return [self._stored(file.path, sums[file.path]) for file in files]

    def _packed(self, listing: Listing) -> list[StoredFile]:
        """An archive or layers: fetched whole, unpacked next to it, and then moved."""
        packed, root = self._parts / PACKED, self._parts / TREE
        download = self._download(packed)
        self._start(listing, listing.files, download, factor=2)
        download.run(listing.files)
        self._progress.enter(Phase.Unpacking)
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        tree = Tree(root, self._where, self._unpacking)
        for file in listing.files:
            if file.title:
                tree.put(packed / file.path, file.title)
            else:
                tree.add(packed / file.path, layer=listing.packing is Packing.Layers)
        top = model_folder(tree.names, self._where)
        start = f"{top}/" if top else ""
        inside = [name.removeprefix(start) for name in sorted(tree.names) if name.startswith(start)]
        names = [name for name in selected(inside, self._include, self._where) if wanted(name)]
        tree.link({start + name for name in names})
        self._check(root / top, set(names))
        for name in names:
            with writing(self._folder):
                (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
                (root / top / name).replace(self._folder / name)
        return [self._stored(name, None) for name in names]

    def _start(self, listing: Listing, files: Sequence[RemoteFile], download: Download, factor: int = 1) -> None:
        """Say what will come, and make room for it."""
        sizes = [file.size for file in files]
        total = sum(size for size in sizes if size is not None)
        self._progress.resolved(listing.commit, None if None in sizes else total, len(files))
        self._report(f"{self._where} is {listing.commit}: {len(files)} files")
        self._progress.enter(Phase.Evicting)
        lacking = sum(file.size or 0 for file in download.missing(files))
        # What parts hold is on the disk already.
        held = sum(path.stat().st_blocks * 512 for path in self._parts.rglob("*.part"))
        self._room.make(max(0, lacking - held) + (factor - 1) * total, self._report)
        self._progress.enter(Phase.Downloading)

    def _download(self, folder: Path) -> Download:
        return Download(self._source, folder, self._progress, self._patience, self._room.check)

    def _check(self, folder: Path, names: set[str]) -> None:
        """Raise `Problem` for a configuration that the engine would not take."""
        if CONFIG in names:
            config = folder / CONFIG
            if config.stat().st_size > LARGEST_CONFIG:
                raise Problem(Reason.NoWeights, f"{self._where}: its config.json has {config.stat().st_size} bytes")
            check_config(config.read_bytes(), self._where)
        elif not any(name.endswith(GGUF) for name in names) and not self._include:
            raise Problem(Reason.NoWeights, f"{self._where}: has weights and no config.json next to them")
        if INDEX in names:
            check_index((folder / INDEX).read_bytes(), names, self._where)

    def _converted(self, gguf: str) -> list[StoredFile]:
        """The folder that a GGUF file becomes; the file itself is not kept."""
        self._progress.enter(Phase.Converting)
        names = convert(self._folder / gguf, self._folder, self._parts / "converted", self._where)
        return [self._stored(name, None) for name in names]

    def _stored(self, path: str, sha256: str | None) -> StoredFile:
        return StoredFile(path, (self._folder / path).stat().st_size, sha256)

    def _remove_others(self, names: set[str]) -> None:
        """Files of another version of the model would be read with this one's."""
        for path in sorted(self._folder.rglob("*"), reverse=True):
            below = path.relative_to(self._folder).as_posix()
            if below.split("/")[0] == FOLDER or below == manifest.NAME:
                continue
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif below not in names:
                path.unlink()

    def _unpacking(self) -> None:
        self._progress.work()
        self._room.check()
