"""Where a model is: the forms of `spec.model.uri` that are downloaded."""

import posixpath
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote, urlsplit

from graphpod_sources.names import safe, shown
from graphpod_sources.problem import Problem, Reason

LONGEST = 2048
FORMS = (
    "hf://ORG/NAME[@REVISION][/FOLDER or /FILE.gguf]",
    "s3://BUCKET/PREFIX",
    "gs://BUCKET/PREFIX",
    "az://CONTAINER/PREFIX",
    "https://HOST/FILE (with a checksum)",
    "oci://REGISTRY/REPOSITORY:TAG",
    "oci://REGISTRY/REPOSITORY@sha256:DIGEST",
    "file:///FOLDER",
)


class Scheme(StrEnum):
    """The kinds of sources."""

    Hub = "hf"
    S3 = "s3"
    Google = "gs"
    Azure = "az"
    Web = "https"
    Registry = "oci"
    Local = "file"


@dataclass(frozen=True, slots=True)
class ModelUri:
    """A parsed uri. `place` is the repository, bucket, host or registry; `path` what lies in it, without slashes
    around it; `revision` a branch, tag, commit or digest.
    """

    text: str
    scheme: Scheme
    place: str
    path: str = ""
    revision: str = ""

    @property
    def folder(self) -> str:
        """`path`, or where the one GGUF file lies that it names."""
        return posixpath.dirname(self.path) if self.file else self.path

    @property
    def file(self) -> str:
        """The GGUF file that the uri names; empty where it names a folder."""
        named = self.path.endswith(".gguf") and self.scheme not in (Scheme.Registry, Scheme.Local)
        return posixpath.basename(self.path) if named else ""

    @property
    def shown(self) -> str:
        """The uri for messages: a query may hold a signature, which is a credential."""
        return self.text.partition("?")[0]


_HUB = re.compile(r"([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:@([^/]{1,200}))?(?:/(.*))?")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_REGISTRY = re.compile(r"([A-Za-z0-9.-]+(?::[0-9]{1,5})?|\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?)")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def parse(text: str) -> ModelUri:
    """The uri in `text`. Raises `Problem` (BadUri) that says which form it should have."""
    scheme, found, rest = text.partition("://")
    if not found or len(text) > LONGEST or not text.isprintable() or " " in text:
        raise _bad(text, f"is no uri; there are {', '.join(FORMS)}")
    try:
        kind = Scheme(scheme)
    except ValueError:
        raise _bad(text, f"has the unknown scheme {shown(scheme)}; there are {', '.join(FORMS)}") from None
    match kind:
        case Scheme.Hub:
            return _hub(text, rest)
        case Scheme.S3 | Scheme.Google | Scheme.Azure:
            bucket, _, prefix = rest.partition("/")
            if not _BUCKET.fullmatch(bucket):
                raise _bad(text, f"names no bucket: {scheme}://BUCKET/PREFIX")
            return ModelUri(text, kind, bucket, _inside(prefix, text))
        case Scheme.Web:
            return _web(text)
        case Scheme.Registry:
            return _registry(text, rest)
        case Scheme.Local:
            folder = unquote(rest)
            if not folder.startswith("/") or ".." in folder.split("/") or "\0" in folder:
                raise _bad(text, "names no absolute folder: file:///FOLDER")
            return ModelUri(text, kind, "", folder)


def _hub(text: str, rest: str) -> ModelUri:
    found = _HUB.fullmatch(rest.rstrip("/"))
    if found is None or ".." in rest:
        raise _bad(text, "should be hf://ORG/NAME[@REVISION][/FOLDER]; a slash in REVISION is written %2F")
    revision = unquote(found[2] or "main")
    if not re.fullmatch(r"[\w.-][\w./-]*", revision) or ".." in revision:
        raise _bad(text, f"has the revision {shown(revision)}, which is no branch, tag or commit")
    return ModelUri(text, Scheme.Hub, found[1], _inside(found[3] or "", text), revision)


def _web(text: str) -> ModelUri:
    try:
        parts = urlsplit(text)
        host, user = parts.hostname, parts.username
        _ = parts.port
    except ValueError as error:
        raise _bad(text, f"is no address ({error})") from error
    if not host or user is not None:
        raise _bad(text, "should be https://HOST/FILE, without a user or password")
    if parts.path.endswith("/") or not parts.path:
        raise _bad(text, "names no file: https://HOST/FILE")
    return ModelUri(text, Scheme.Web, host, unquote(parts.path).lstrip("/"))


def _registry(text: str, rest: str) -> ModelUri:
    registry, _, repository = rest.partition("/")
    revision = "latest"
    if "@" in repository:
        repository, _, revision = repository.partition("@")
        if not _DIGEST.fullmatch(revision):
            raise _bad(text, "should end with @sha256: and 64 hexadecimal digits")
        repository = repository.partition(":")[0]
    elif ":" in repository:
        repository, _, revision = repository.partition(":")
    if not _REGISTRY.fullmatch(registry) or not _REPOSITORY.fullmatch(repository):
        raise _bad(text, "should be oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST")
    if not _TAG.fullmatch(revision) and not _DIGEST.fullmatch(revision):
        raise _bad(text, f"has the tag {shown(revision)}, which no registry takes")
    return ModelUri(text, Scheme.Registry, registry, repository, revision)


def _inside(path: str, text: str) -> str:
    path = path.strip("/")
    if not path:
        return ""
    try:
        return safe(path, text)
    except Problem as problem:
        raise Problem(Reason.BadUri, problem.what) from problem


def _bad(text: str, wrong: str) -> Problem:
    return Problem(Reason.BadUri, f"{shown(text.partition('?')[0])} {wrong}")
