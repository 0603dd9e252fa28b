"""A model hub in the manner of Hugging Face's: `python -m stubs.hub --folder DIR`, then `HF_ENDPOINT=http://…`.

The folder holds ORG/NAME/REVISION/FILES. The commit of a revision is made from its files' names and contents, so it
changes when they do, and stands for the revision in every path. Weight files are redirected to a path of a content
network, as the real hub does for everything in large file storage. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from stubs.web import Asked, Reply, WebStub, files, inside, parser, run, whole

LARGE = (".safetensors", ".bin", ".gguf", ".pt")
CODES = {403: "GatedRepo"}
"""`X-Error-Code` of a status, where the client distinguishes its kinds by it (source: huggingface_hub.utils._http)."""


class Hub:
    """The hub's answers from a folder. With a `token`, who does not bring it is turned away."""

    def __init__(self, folder: Path, token: str | None = None) -> None:
        self._folder, self._token = folder, token

    def answer(self, asked: Asked) -> Reply:
        if asked.method not in ("GET", "HEAD"):
            return refusal(405)
        given = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if self._token is not None and given != self._token:
            # without a token a private repository is one that is not there
            return _no(401, "Invalid credentials in Authorization header") if given else _no(401, *_NO_REPOSITORY)
        match asked.path.strip("/").split("/"):
            case ["api", "models", owner, name, *rest]:
                return self._api(owner, name, rest, asked)
            case [owner, name, "resolve", revision, *file]:
                return self._resolve(owner, name, revision, "/".join(file), asked)
            case ["cdn", owner, name, commit, *file]:
                return self._file(owner, name, commit, "/".join(file), redirect=None)
        return _no(404, f"no {asked.path} here")

    def _api(self, owner: str, name: str, rest: list[str], asked: Asked) -> Reply:
        kind, revision = (rest[0], rest[1]) if len(rest) > 1 else ("revision", "main")
        place = self._revision(owner, name, revision)
        if isinstance(place, Reply):
            return place
        files = [_entry(place, file) for file in _files(place)]
        if kind == "tree":
            return _json(files, commit(place))
        if kind != "revision":
            return _no(404, f"no {asked.path} here")
        detailed = "blobs" in parse_qs(asked.query)
        siblings = [{"rfilename": f["path"], **({**f, "blobId": f["oid"]} if detailed else {})} for f in files]
        said = {"id": f"{owner}/{name}", "modelId": f"{owner}/{name}", "sha": commit(place), "siblings": siblings}
        return _json({**said, "private": self._token is not None, "gated": False, "tags": []}, commit(place))

    def _resolve(self, owner: str, name: str, revision: str, file: str, asked: Asked) -> Reply:
        host = asked.headers.get("host", "")
        return self._file(owner, name, revision, file, redirect=f"http://{host}/cdn/{owner}/{name}")

    def _file(self, owner: str, name: str, revision: str, file: str, redirect: str | None) -> Reply:
        place = self._revision(owner, name, revision)
        if isinstance(place, Reply):
            return place
        path = inside(place, file)
        if path is None or not path.is_file():
            return _no(404, f"{file} does not exist in {owner}/{name} at {revision}", "EntryNotFound", commit(place))
        entry = _entry(place, path)
        etag = f'"{entry.get("lfs", entry)["oid"]}"'
        headers = {"ETag": etag, "X-Repo-Commit": commit(place), "Content-Type": "application/octet-stream"}
        if redirect and "lfs" in entry:
            linked = {"X-Linked-Size": str(entry["size"]), "X-Linked-Etag": etag}
            return Reply(302, {**headers, **linked, "Location": f"{redirect}/{commit(place)}/{quote(file)}"})
        return whole(path, headers)

    def _revision(self, owner: str, name: str, revision: str) -> Path | Reply:
        """The folder of a revision, named by itself or by its commit; or why there is none."""
        repository = inside(self._folder, f"{owner}/{name}")
        if repository is None or not repository.is_dir():
            return _no(404, *_NO_REPOSITORY)
        for place in sorted(p for p in repository.iterdir() if p.is_dir()):
            if revision in (place.name, commit(place)):
                return place
        return _no(404, f"Invalid rev id: {revision}", "RevisionNotFound")


_NO_REPOSITORY = ("Repository not found", "RepoNotFound")


def commit(place: Path) -> str:
    """Forty hexadecimal digits that change with the name and content of any file."""
    digest = hashlib.sha1(usedforsecurity=False)
    for file in _files(place):
        digest.update(f"{file.relative_to(place)}\0{_sha256(file)}\n".encode())
    return digest.hexdigest()


def refusal(status: int) -> Reply:
    """The hub's no."""
    return _no(status, f"{status} from the hub", CODES.get(status))


def _no(status: int, message: str, code: str | None = None, at: str | None = None) -> Reply:
    headers = {"X-Error-Message": message, "Content-Type": "application/json"}
    headers |= {"X-Error-Code": code} if code else {}
    headers |= {"X-Repo-Commit": at} if at else {}
    return Reply(status, headers, json.dumps({"error": message}).encode())


def _json(content: Any, at: str) -> Reply:
    return Reply(200, {"Content-Type": "application/json", "X-Repo-Commit": at}, json.dumps(content).encode())


def _files(place: Path) -> list[Path]:
    return sorted(p for p in place.rglob("*") if p.is_file())


def _entry(place: Path, file: Path) -> dict[str, Any]:
    """A file as the hub's tree lists it."""
    size, sha = file.stat().st_size, _sha256(file)
    entry: dict[str, Any] = {"type": "file", "path": str(file.relative_to(place)), "size": size, "oid": sha[:40]}
    if file.suffix not in LARGE:
        blob = b"blob %d\0" % size + file.read_bytes()
        entry["oid"] = hashlib.sha1(blob, usedforsecurity=False).hexdigest()  # as git names it
    else:
        entry["lfs"] = {"oid": sha, "sha256": sha, "size": size, "pointerSize": 134}
    return entry


def _sha256(file: Path) -> str:
    state = file.stat()
    return _sha256_of(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4096)
def _sha256_of(file: Path, _size: int, _modified: int) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def serve(
    folder: Path,
    token: str | None = None,
    listen: tuple[str, int] = ("127.0.0.1", 0),
    control: tuple[str, int] = ("127.0.0.1", 0),
) -> WebStub:
    """The hub over HTTP."""
    return WebStub(Hub(folder, token).answer, refusal, listen, control, files(folder))


def main(argv: Sequence[str]) -> int:
    words = parser("hub", "A model hub over a folder of ORG/NAME/REVISION/FILES.")
    words.add_argument("--token", help="who does not bring it is turned away")
    words.add_argument("--folder", type=Path, required=True, help="what is served")
    args = words.parse_args(argv)
    return run(serve(args.folder, args.token, (args.address, args.port), (args.address, args.control)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
