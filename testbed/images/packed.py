"""Images as files: an OCI layout (a folder), an OCI archive, a docker archive. Read alike, written as one kind of tar.

What `write` makes is both an OCI archive and a docker archive: `skopeo`, `docker load`, `podman load`, `kind load` and
`ctr images import` read it. The same images give the same bytes, and blobs that the reader has already are left out.
"""

import hashlib
import io
import json
import platform
import posixpath
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from testbed.errors import TestbedError

OCI = "application/vnd.oci.image"
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")  # the first is what containerd looks for
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CHUNK = 1 << 20  # bytes
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Blob:
    """Bytes that lie somewhere: in a file of their own, or in the middle of an archive."""

    digest: str  # sha256:…
    size: int
    place: Path
    offset: int = 0

    def read(self) -> bytes:
        with self.place.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)

    @contextmanager
    def tar(self) -> Iterator[tarfile.TarFile]:
        """A layer's files."""
        with self.place.open("rb") as file:
            file.seek(self.offset)
            with tarfile.open(fileobj=file) as tar:
                yield tar


Files = Mapping[str, Blob]  # by path in a layout or archive; digests are known of OCI blobs only


@dataclass(frozen=True)
class Packed:
    """One image. Its `id` is what Kubernetes calls a container's imageID, its `digest` what a registry calls it."""

    name: str
    manifest: bytes
    config: Blob
    layers: tuple[Blob, ...]  # lowest first

    @property
    def digest(self) -> str:
        return _digest(self.manifest)

    @property
    def id(self) -> str:
        return self.config.digest

    @property
    def size(self) -> int:
        """Bytes of all layers."""
        return sum(layer.size for layer in self.layers)

    def settings(self) -> dict[str, Any]:
        """The image's configuration: what runs, in which environment, labels."""
        found: dict[str, Any] = json.loads(self.config.read())
        return found

    def file(self, path: str) -> bytes:
        """A file of the image's root, as the uppermost layer that has it holds it."""
        for layer in reversed(self.layers):
            with layer.tar() as tar:
                for member in tar:
                    if posixpath.join("/", posixpath.normpath(member.name)) == path and member.isreg():
                        return _content(tar, member)
        raise TestbedError(f"image {self.name} holds no file {path}")


def read(place: Path) -> list[Packed]:
    """The images in a layout's folder or in an archive. Raises `TestbedError` when it is neither."""
    if not place.exists():
        raise TestbedError(f"there is no image {place}: build it first")
    try:
        files = _folder(place) if place.is_dir() else _members(place)
        if "index.json" in files:
            found = _from_index(files, json.loads(files["index.json"].read())["manifests"])
        elif "manifest.json" in files:
            found = [_from_docker(files, entry) for entry in json.loads(files["manifest.json"].read())]
        else:
            raise TestbedError(f"{place} is no image: it has neither index.json (OCI) nor manifest.json (docker)")
    except (tarfile.TarError, json.JSONDecodeError, KeyError) as e:
        raise TestbedError(f"{place} is no image that can be read ({type(e).__name__}: {e}): build it again") from e
    if not found or not all(image.name for image in found):
        raise TestbedError(
            f"{place} holds an image without a name: give it one (`buildah push IMAGE docker-archive:FILE:NAME`)"
        )
    return found


def write(images: Iterable[Packed], out: IO[bytes], without: Collection[str] = ()) -> int:
    """Writes the archive to `out`, which need not be seekable, less the blobs named by digest.

    Returns the bytes of the blobs that went into it.
    """
    chosen = sorted(images, key=lambda image: image.name)
    index = {"schemaVersion": 2, "manifests": [_entry(image) for image in chosen]}
    docker = [
        {
            "Config": _path(image.config.digest),
            "RepoTags": [image.name],
            "Layers": [_path(layer.digest) for layer in image.layers],
        }
        for image in chosen
    ]
    blobs = {blob.digest: blob for image in chosen for blob in (image.config, *image.layers)}
    # TarFile has this argument, and typeshed does not know that a stream takes it
    chunks: dict[str, Any] = {"copybufsize": CHUNK}
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, **chunks) as tar:
        _add(tar, "oci-layout", LAYOUT)
        _add(tar, "index.json", _json(index))
        _add(tar, "manifest.json", _json(docker))
        for image in chosen:
            _add(tar, _path(image.digest), image.manifest)
        sent = [blobs[digest] for digest in sorted(blobs.keys() - set(without))]
        for blob in sent:
            with blob.place.open("rb") as file:
                file.seek(blob.offset)
                tar.addfile(_info(_path(blob.digest), blob.size), file)
    return sum(blob.size for blob in sent)


def lay_out(images: Iterable[Packed], folder: Path) -> None:
    """Makes `folder` an OCI layout of these images; their blobs are links to where they lie."""
    chosen = list(images)
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for image in chosen:
        (folder / _path(image.digest)).write_bytes(image.manifest)
        for blob in (image.config, *image.layers):
            if blob.offset:
                raise TestbedError(f"{blob.place} is an archive: a layout is made of an image in a layout")
            link = folder / _path(blob.digest)
            if not link.exists():
                link.symlink_to(blob.place)
    (folder / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [_entry(i) for i in chosen]}))
    (folder / "oci-layout").write_bytes(LAYOUT)


def configure(folder: Path, settings: Mapping[str, Any]) -> None:
    """Gives the one image of a layout another configuration, and no annotations; the old one's blobs stay behind."""
    (image,) = read(folder)
    config = _json(settings)
    manifest = json.loads(image.manifest)
    manifest["config"] |= {"digest": _digest(config), "size": len(config)}
    manifest.pop("annotations", None)
    new = Packed(image.name, _json(manifest), image.config, image.layers)
    for content in (config, new.manifest):
        (folder / _path(_digest(content))).write_bytes(content)
    (folder / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [_entry(new)]}))


def architecture() -> str:
    """This machine's, in the words of images."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise TestbedError(f"this is a {machine} machine; the testbed knows {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[machine]


# --- reading


def _folder(place: Path) -> Files:
    # a layout's `blobs` may be a link to a folder that several layouts share
    files = [f for f in place.iterdir() if f.is_file()]
    blobs = place / "blobs" / "sha256"
    files += blobs.iterdir() if blobs.is_dir() else []
    return {(name := f.relative_to(place).as_posix()): Blob(_named(name), f.stat().st_size, f.resolve()) for f in files}


def _members(place: Path) -> Files:
    with tarfile.open(place, "r:") as tar:
        found = {
            (name := posixpath.normpath(m.name)): Blob(_named(name), m.size, place, m.offset_data)
            for m in tar
            if m.isreg()
        }
        for member in tar.getmembers():  # older `docker save`s link layers that are the same
            target = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))
            if member.issym() and target in found:
                found[posixpath.normpath(member.name)] = found[target]
    return found


def _from_index(files: Files, descriptors: list[dict[str, Any]]) -> list[Packed]:
    images = []
    for descriptor in descriptors:
        names = descriptor.get("annotations") or {}
        name = next((names[key] for key in NAMES if names.get(key)), "")
        manifest = _manifest(files, descriptor)
        body = json.loads(manifest.read())
        config = files[_path(body["config"]["digest"])]
        layers = tuple(files[_path(layer["digest"])] for layer in body["layers"])
        images.append(Packed(name, manifest.read(), config, layers))
    return images


def _manifest(files: Files, descriptor: Mapping[str, Any]) -> Blob:
    """The manifest a descriptor means; where it is an index, the one for this machine's architecture."""
    found = files[_path(descriptor["digest"])]
    body = json.loads(found.read())
    if "manifests" not in body:
        return found
    ours = [m for m in body["manifests"] if m.get("platform", {}).get("architecture") == architecture()]
    if not ours:
        raise TestbedError(f"{found.place} holds no image for {architecture()}")
    return _manifest(files, ours[0])


def _from_docker(files: Files, entry: Mapping[str, Any]) -> Packed:
    """A docker archive has no manifest of OCI's kind: made here, from the digests of what it has."""
    config = _hashed(files[posixpath.normpath(entry["Config"])])
    found = [files[posixpath.normpath(name)] for name in entry["Layers"]]
    layers = tuple(
        Blob(diff, layer.size, layer.place, layer.offset) if not _gzipped(layer) else _hashed(layer)
        for layer, diff in zip(found, json.loads(config.read())["rootfs"]["diff_ids"], strict=True)
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": {"mediaType": f"{OCI}.config.v1+json", "digest": config.digest, "size": config.size},
        "layers": [
            {
                "mediaType": f"{OCI}.layer.v1.tar" + ("+gzip" if _gzipped(layer) else ""),
                "digest": layer.digest,
                "size": layer.size,
            }
            for layer in layers
        ],
    }
    return Packed((entry.get("RepoTags") or [""])[0], _json(manifest), config, layers)


def _gzipped(blob: Blob) -> bool:
    with blob.place.open("rb") as file:
        file.seek(blob.offset)
        return file.read(2) == GZIP


def _hashed(blob: Blob) -> Blob:
    digest, left = hashlib.sha256(), blob.size
    with blob.place.open("rb") as file:
        file.seek(blob.offset)
        while left and (chunk := file.read(min(CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    return Blob(f"sha256:{digest.hexdigest()}", blob.size, blob.place, blob.offset)


# --- writing


def _entry(image: Packed) -> dict[str, Any]:
    return {
        "mediaType": json.loads(image.manifest).get("mediaType", f"{OCI}.manifest.v1+json"),
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": dict.fromkeys(NAMES, image.name),
    }


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_info(name, len(content)), io.BytesIO(content))


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)  # modification time 0, owner 0
    info.size, info.mode = size, 0o644
    return info


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _named(path: str) -> str:
    """The digest that an OCI blob's path names; empty for other files."""
    return f"sha256:{path.removeprefix('blobs/sha256/')}" if path.startswith("blobs/sha256/") else ""
