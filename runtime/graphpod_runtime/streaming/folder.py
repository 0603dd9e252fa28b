"""A model's folder whose weights stay at their source: the small files, and a map of where each tensor is.

`prepare` fills it before anything of the engine looks at it; processes that load weights read the map. The version is
fixed there: every later request names the commit or the entity tag of the listing.
"""

import json
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from graphpod_policy import STREAM_CREDENTIALS, StreamConfig
from graphpod_runtime.base.errors import SourceFailed
from graphpod_runtime.streaming.headers import MOST_TENSORS, RemoteTensor, header
from graphpod_sources.credentials import Credentials, without_secrets
from graphpod_sources.listing import Listing, Packing, RemoteFile, Source
from graphpod_sources.names import shown, size
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.progress import Progress
from graphpod_sources.selection import (
    CONFIG,
    INDEX,
    LARGEST_CONFIG,
    WEIGHTS,
    check_config,
    check_index,
    check_sizes,
    is_weights,
    selected,
)
from graphpod_sources.stores.allowed_hosts import EVERYTHING, AllowedHosts
from graphpod_sources.stores.choice import source_of
from graphpod_sources.transfer.download import CONNECTIONS, Download
from graphpod_sources.transfer.part import FOLDER as PARTS
from graphpod_sources.transfer.patience import Patience
from graphpod_sources.uri import ModelUri, Scheme, parse

NAME = ".graphpod-stream.json"
CREDENTIALS = Path(STREAM_CREDENTIALS)
STREAMED = (Scheme.Hub, Scheme.S3, Scheme.Google, Scheme.Azure)
MOST_TEXT = 1 << 30
"""Bytes of all small files together: they lie on the node's own disk."""
LARGEST_INDEX = 64 << 20  # bytes
LARGEST_HOSTS = 1 << 20  # bytes
STALL_SECONDS = 120.0
CACHE = "set spec.model.cache instead of spec.model.stream"


@dataclass(frozen=True, slots=True)
class StreamedFile:
    """A file of weights at its source, and its tensors in the order of their bytes."""

    remote: RemoteFile
    tensors: tuple[RemoteTensor, ...]


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a folder says of weights that are not in it. `uri` names the commit, where there are commits."""

    uri: str
    hosts: tuple[str, ...]
    files: tuple[StreamedFile, ...]

    def source(self) -> Source:
        """Where they are read. Raises `Problem`."""
        return _source(parse(self.uri), self.hosts)


def is_streamed(folder: Path) -> bool:
    """Whether the weights of a model's folder are not in it."""
    return (folder / NAME).is_file()


def streamed(folder: Path) -> Streamed:
    """The map of a folder that `prepare` has filled."""
    said = json.loads((folder / NAME).read_bytes())
    files = tuple(
        StreamedFile(RemoteFile(**file["remote"]), tuple(RemoteTensor.of(*one) for one in file["tensors"]))
        for file in said["files"]
    )
    return Streamed(said["uri"], tuple(said["hosts"]), files)


def prepare(folder: Path, asked: StreamConfig) -> Streamed:
    """Make `folder` one of the model that `asked` names: its small files and the map of its weights. Files of an
    earlier start are gone. SourceFailed says why it cannot be done.
    """
    try:
        return _prepared(folder, asked)
    except Problem as problem:
        raise source_failed(problem) from problem
    except OSError as error:
        raise SourceFailed(f"{folder} cannot be written: {error.strerror or error}") from error


def source_failed(problem: Problem) -> SourceFailed:
    """A problem of a source as the engine ends by it: its word, what, and the next step."""
    step = _STEPS.get(problem.reason, problem.next_step)
    return SourceFailed(f"{problem.reason}: {problem.what}; {step}")


_STEPS = {
    Reason.Truncated: "check the proxy or mirror on the way: it ends answers early",
    Reason.ChangedUnderUs: "wait until the upload is complete: the pod starts again with what is there then",
    Reason.Unreachable: "check DNS, egress policies and proxy variables of the service's namespace",
    Reason.ServerError: "the pod tries again by itself, so ask who runs the source if it stays",
    Reason.Stalled: "check the network between the cluster and the source: the pod tries again",
}
"""Where the download's own step is about its Job."""


def _prepared(folder: Path, asked: StreamConfig) -> Streamed:
    uri = parse(asked.uri)
    source = _source(uri, hosts := _hosts(asked.hosts))
    progress = Progress()
    patience = Patience(STALL_SECONDS, progress, threading.Event())
    listing = patience.call(source.listing)
    texts, weights = _files(uri, listing)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    Download(source, folder, progress, patience, space=lambda: None).run(texts)
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    names = {file.path for file in (*texts, *weights)}
    if CONFIG not in names:
        raise Problem(Reason.NoWeights, f"{uri.shown}: has weights and no config.json next to them")
    for name, most in ((CONFIG, LARGEST_CONFIG), (INDEX, LARGEST_INDEX)):
        if name in names and (count := (folder / name).stat().st_size) > most:
            raise Problem(Reason.NoWeights, f"{uri.shown}: its {name} has {size(count)}, more than a model's can have")
    check_config((folder / CONFIG).read_bytes(), uri.shown)
    if INDEX in names:
        check_index((folder / INDEX).read_bytes(), names, uri.shown)
        indexed = set(json.loads((folder / INDEX).read_bytes())["weight_map"].values())
        weights = [file for file in weights if file.path in indexed]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        tensors = pool.map(lambda file: _header(source, file, patience), weights)
        files = tuple(_bounded(map(StreamedFile, weights, tensors), uri.shown))
    found = Streamed(_pinned(uri, listing), hosts, files)
    (folder / NAME).write_text(json.dumps(_document(found)))
    return found


def _bounded(files: Iterable[StreamedFile], where: str) -> Iterator[StreamedFile]:
    """The same files. Raises `Problem` (NoWeights) where they have more tensors than any model: all lie in memory."""
    count = 0
    for file in files:
        if (count := count + len(file.tensors)) > MOST_TENSORS:
            raise Problem(Reason.NoWeights, f"{where}: its files have more than {MOST_TENSORS} tensors")
        yield file


def _header(source: Source, file: RemoteFile, patience: Patience) -> tuple[RemoteTensor, ...]:
    found = patience.call(partial(header, source, file))
    patience.progress.work()
    return found


def _hosts(file: str) -> tuple[str, ...]:
    """The entries of the file, which the operator writes; all hosts where there is none. Raises `Problem`."""
    if not file:
        return EVERYTHING
    try:
        with Path(file).open("rb") as content:
            entries = json.loads(content.read(LARGEST_HOSTS))
        if isinstance(entries, list) and all(isinstance(one, str) for one in entries):
            return tuple(entries)
        why = "it is no list of texts"
    except (OSError, ValueError, RecursionError) as error:
        why = str(error)
    step = "let the operator write the ConfigMap of allowed.sourceHosts again: the pod starts again by itself"
    raise Problem(Reason.HostNotAllowed, f"the hosts in {file} cannot be read: {why}", next_step=step)


def _source(uri: ModelUri, hosts: tuple[str, ...]) -> Source:
    if uri.scheme not in STREAMED or uri.file:
        what = "one GGUF file, which is converted first" if uri.file else f"{uri.scheme}://, which cannot be streamed"
        raise Problem(Reason.BadUri, f"{uri.shown} is {what}", next_step=CACHE)
    # Only the Secret has credentials: what a variable has is not bound to hosts.
    known = Credentials.read(CREDENTIALS, without_secrets(os.environ))
    return source_of(uri, known, None, STALL_SECONDS, AllowedHosts(hosts))


def _files(uri: ModelUri, listing: Listing) -> tuple[list[RemoteFile], list[RemoteFile]]:
    """Small files and weights. Raises `Problem` for what no range of can be read, or no version be named."""
    by_name = {file.path: file for file in listing.files}
    if listing.packing is not Packing.Files or len(by_name) != len(listing.files):
        raise Problem(Reason.BadArchive, f"{uri.shown}: is packed, or lists one name twice", next_step=CACHE)
    files = [by_name[name] for name in selected(list(by_name), (), uri.shown)]
    check_sizes(((file.path, file.size) for file in files), uri.shown)
    texts = [file for file in files if not is_weights(file.path)]
    weights = [file for file in files if is_weights(file.path)]
    if (count := sum(file.size or 0 for file in texts)) > MOST_TEXT:
        raise Problem(Reason.DiskFull, f"{uri.shown}: has {size(count)} of texts next to its weights", next_step=CACHE)
    for file in weights:
        if not file.path.endswith(WEIGHTS):
            raise Problem(
                Reason.NoWeights, f"{uri.shown}: {shown(file.path)} is converted before it can be read", next_step=CACHE
            )
        if file.size is None or not file.ranges or not file.identity:
            what = "its source names neither its size nor its version"
            raise Problem(Reason.ServerError, f"{uri.shown}: {shown(file.path)}: {what}", next_step=CACHE)
    return texts, weights


def _pinned(uri: ModelUri, listing: Listing) -> str:
    """The uri with the commit for its revision; objects have an entity tag each instead."""
    if uri.scheme is not Scheme.Hub:
        return uri.text
    return f"{uri.scheme}://{uri.place}@{listing.commit}" + (f"/{uri.path}" if uri.path else "")


def _document(found: Streamed) -> object:
    files = [
        {"remote": asdict(file.remote), "tensors": [one.document() for one in file.tensors]} for file in found.files
    ]
    return {"uri": found.uri, "hosts": list(found.hosts), "files": files}
