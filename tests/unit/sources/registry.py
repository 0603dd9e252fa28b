"""A container registry over HTTP for tests: manifests and blobs of one repository, with a token login."""

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

from stubs.web import Asked, Reply

TAR = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def tar(files: Mapping[str, bytes], *more: tarfile.TarInfo) -> bytes:
    """A tar archive of files, and of headers as they are given."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in more:
            archive.addfile(member, io.BytesIO(bytes(member.size)) if member.isreg() else None)
    return out.getvalue()


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member


class Registry:
    """The program of a stub. `login`: user and password without which no token is given; None: everybody reads."""

    def __init__(self, login: tuple[str, str] | None = None) -> None:
        self._login = login
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.elsewhere: str | None = None
        """Where blobs are redirected to."""
        self.asked: list[Asked] = []

    def push(self, tag: str, layers: Sequence[tuple[bytes, str, Mapping[str, str]]], **changed: object) -> str:
        """A manifest of layers, each its content, media type and annotations; the manifest's digest."""
        entries = []
        for content, kind, notes in layers:
            self.blobs[digest(content)] = content
            entries.append({"digest": digest(content), "size": len(content), "mediaType": kind, "annotations": notes})
        return self.put(tag, {"schemaVersion": 2, "mediaType": MANIFEST, "layers": entries, **changed})

    def put(self, tag: str, manifest: object) -> str:
        content = json.dumps(manifest).encode()
        self.manifests[tag] = self.manifests[digest(content)] = content
        return digest(content)

    def __call__(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if asked.path == "/token":
            return self._token(asked)
        if self._login and asked.headers.get("authorization") != "Bearer let-me-in":
            realm = (
                f'Bearer realm="http://{asked.headers["host"]}/token",service="stub",scope="repository:org/tiny:pull"'
            )
            return Reply(401, {"WWW-Authenticate": realm})
        match asked.path.strip("/").split("/"):
            case ["v2", "org", "tiny", "manifests", reference] if reference in self.manifests:
                return Reply(200, {"Content-Type": MANIFEST}, self.manifests[reference])
            case ["v2", "org", "tiny", "blobs", name] if name in self.blobs:
                if self.elsewhere:
                    return Reply(307, {"Location": f"{self.elsewhere}/{name}?signature=1"})
                return part(self.blobs[name], asked)
        return Reply(404)

    def _token(self, asked: Asked) -> Reply:
        word = base64.b64encode(":".join(self._login or ("", "")).encode()).decode()
        scope = parse_qs(asked.query)["scope"]
        if asked.headers.get("authorization") != f"Basic {word}" or scope != ["repository:org/tiny:pull"]:
            return Reply(401)
        return Reply(200, {}, b'{"token": "let-me-in"}')


def part(content: bytes, asked: Asked) -> Reply:
    """Bytes as a server with ranges answers them."""
    header = asked.headers.get("range")
    if header is None:
        return Reply(200, {"Accept-Ranges": "bytes"}, content)
    start, _, end = header.removeprefix("bytes=").partition("-")
    first, last = int(start), min(int(end) if end else len(content) - 1, len(content) - 1)
    span = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
    return Reply(206, span, content[first : last + 1])
