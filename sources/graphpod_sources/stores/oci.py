"""oci://: a model in a container registry: layers of an image, or files of an artifact (distribution-spec 1.1)."""

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from graphpod_sources.listing import Listing, Packing, RemoteFile
from graphpod_sources.names import safe, shown, whole
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores import ranges
from graphpod_sources.stores.http_client import Http, Reply, origin, refusal
from graphpod_sources.stores.registry_login import Login
from graphpod_sources.uri import ModelUri

MOST_LAYERS = 1024
LARGEST_MANIFEST = 4 << 20  # bytes, as registries take them
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
TITLES = ("org.opencontainers.image.title", "org.cncf.model.filepath", "org.cnai.model.filepath")
"""Annotations that name the one file that a layer is."""
DOCKER_HUB = "registry-1.docker.io"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class Registry:
    """A repository of a registry. `plain`: it speaks HTTP without TLS."""

    def __init__(self, uri: ModelUri, http: Http, credentials: tuple[str, str] | None, *, plain: bool) -> None:
        host = DOCKER_HUB if uri.place in ("docker.io", "index.docker.io") else uri.place
        repository = f"library/{uri.path}" if host == DOCKER_HUB and "/" not in uri.path else uri.path
        self._uri, self._http = uri, http
        self._base = f"{'http' if plain else 'https'}://{host}/v2/{repository}"
        bare = origin(self._base)[1] if plain else None
        self._login = Login(http, credentials, f"repository:{repository}:pull", plain=bare)

    def listing(self) -> Listing:
        manifest, digest = self._manifest(self._uri.revision)
        kind = manifest.get("mediaType")
        if kind in INDEXES or "manifests" in manifest:
            child = self._chosen(manifest.get("manifests"))
            manifest, _ = self._manifest(child)
        layers = manifest.get("layers")
        if not isinstance(layers, Sequence) or isinstance(layers, str) or not layers:
            raise Problem(Reason.NoWeights, f"{self._uri.shown}: its manifest has no layers")
        if len(layers) > MOST_LAYERS:
            raise Problem(Reason.BadArchive, f"{self._uri.shown}: has {len(layers)} layers, more than {MOST_LAYERS}")
        return Listing(digest, tuple(self._layer(n, layer) for n, layer in enumerate(layers)), Packing.Layers)

    def _manifest(self, reference: str) -> tuple[Mapping[str, Any], str]:
        """A manifest and its digest, checked where the reference is one."""
        accept = {"Accept": ", ".join((*MANIFESTS, *INDEXES))}
        with self._get(f"manifests/{reference}", accept) as reply:
            content = reply.document(LARGEST_MANIFEST)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if reference.startswith("sha256:") and digest != reference:
            raise Problem(
                Reason.ChecksumMismatch, f"{self._uri.shown}: the digest of its manifest is {digest}, not {reference}"
            )
        try:
            manifest = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Problem(Reason.ServerError, f"{self._uri.shown}: its manifest is no JSON ({error})") from error
        if not isinstance(manifest, Mapping):
            raise Problem(Reason.ServerError, f"{self._uri.shown}: its manifest is no object")
        return manifest, digest

    def _chosen(self, entries: Any) -> str:
        """Digest of the manifest for this machine; else of the only one, since weights are the same for all."""
        machine = MACHINES.get(platform.machine(), platform.machine())
        found: list[tuple[str, str, str]] = []
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, Mapping) and _DIGEST.fullmatch(str(entry.get("digest"))):
                named = entry.get("platform")
                where = named if isinstance(named, Mapping) else {}
                found.append((str(entry["digest"]), str(where.get("os", "")), str(where.get("architecture", ""))))
        real = [row for row in found if row[1:] != ("unknown", "unknown")]  # attestations of a build
        fitting = [row for row in real if row[1:] == ("linux", machine)] or [row for row in real if not row[2]]
        if not fitting and len(real) != 1:
            had = ", ".join(f"{row[1]}/{row[2]}" for row in real[:8]) or "none"
            raise Problem(Reason.NotFound, f"{self._uri.shown}: has no manifest for linux/{machine}; it has {had}")
        return (fitting or real)[0][0]

    def _layer(self, number: int, layer: Any) -> RemoteFile:
        try:
            digest, count, kind = str(layer["digest"]), whole(layer["size"]), str(layer["mediaType"])
            found = _DIGEST.fullmatch(digest)
            if found is None or not 0 <= count < 1 << 50:
                raise ValueError(f"digest {shown(digest)}, size {count}")
            notes = layer.get("annotations") or {}
            title = next((str(notes[name]) for name in TITLES if notes.get(name)), "")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Problem(
                Reason.BadArchive, f"{self._uri.shown}: layer {number} of its manifest is malformed ({error})"
            ) from error
        if "tar" in kind.split("/")[-1].replace("+", ".").split("."):
            title = ""
        elif title:
            title = safe(title.removeprefix("./"), self._uri.shown)
        else:
            raise Problem(
                Reason.BadArchive,
                f"{self._uri.shown}: layer {number} has the media type {shown(kind)} and no file name",
                next_step="publish tar layers, or files with org.opencontainers.image.title as oras push does",
            )
        return RemoteFile(f"layer-{number:04}", count, digest, found[1], title=title)

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[memoryview]:
        with self._get(f"blobs/{file.address}", ranges.header(file, start, end)) as reply:
            yield from ranges.body(reply, file, start, end)

    @contextmanager
    def _get(self, path: str, headers: Mapping[str, str]) -> Iterator[Reply]:
        """An answer, after a login where the registry asks for one. Registries redirect blobs to other hosts."""
        for tries in (1, 2):
            secret = self._login.header
            with self._http.get(f"{self._base}/{path}", headers=headers, secret=secret, judge=None) as reply:
                if reply.status != 401 or tries == 2:
                    if reply.status >= 300:
                        raise self._judge(reply)
                    yield reply
                    return
                if origin(reply.url) != origin(self._base):
                    # Whoever a blob is redirected to is no party to the login.
                    raise self._judge(reply)
                challenge = reply.headers.get("www-authenticate", "")
            self._login.answer(challenge, secret, self._uri.shown)

    def _judge(self, reply: Reply) -> Problem:
        if reply.status in (401, 403):
            return Problem(
                Reason.Unauthorized,
                f"{self._uri.shown}: the registry refuses to let it be read, or it does not exist",
                next_step="correct spec.model.uri, or name a Secret of type kubernetes.io/dockerconfigjson for "
                f"{self._uri.place} in spec.model.secretRef",
            )
        if reply.status == 404:
            return Problem(Reason.NotFound, f"{self._uri.shown} does not exist in the registry")
        return refusal(reply)
