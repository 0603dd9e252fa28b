"""Images as files: read from folders and archives alike, written the same every time, less what is there already."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.images import packed
from testbed.nodes.pause import docker_archive

NAME = "graphpod.dev/toy:1"


def archive(tmp_path: Path, program: bytes = b"program", name: str = NAME) -> Path:
    place = tmp_path / f"{hashlib.sha256(program).hexdigest()[:6]}.tar"
    place.write_bytes(docker_archive(program, "amd64", name))
    return place


def written(images: list[packed.Packed], without: tuple[str, ...] = ()) -> bytes:
    out = io.BytesIO()
    packed.write(images, out, without)
    return out.getvalue()


def names(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return tar.getnames()


def blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def test_a_docker_archive_tells_its_name_its_identity_and_its_layers(tmp_path: Path) -> None:
    (image,) = packed.read(archive(tmp_path))
    assert image.name == NAME
    assert image.id == f"sha256:{hashlib.sha256(image.config.read()).hexdigest()}"
    assert [layer.digest for layer in image.layers] == image.settings()["rootfs"]["diff_ids"]
    assert image.size == sum(len(layer.read()) for layer in image.layers)


def test_what_is_written_is_read_as_the_same_image(tmp_path: Path) -> None:
    (image,) = packed.read(archive(tmp_path))
    copy = tmp_path / "copy.tar"
    copy.write_bytes(written([image]))
    (again,) = packed.read(copy)
    assert (again.name, again.digest, again.id) == (image.name, image.digest, image.id)
    assert [layer.read() for layer in again.layers] == [layer.read() for layer in image.layers]


def test_what_is_written_is_a_docker_archive_too(tmp_path: Path) -> None:
    (image,) = packed.read(archive(tmp_path))
    with tarfile.open(fileobj=io.BytesIO(written([image]))) as tar:
        (entry,) = json.load(tar.extractfile("manifest.json"))
        assert entry["RepoTags"] == [NAME]
        assert {entry["Config"], *entry["Layers"]} <= set(tar.getnames())


def test_the_same_images_are_the_same_bytes_in_whatever_order(tmp_path: Path) -> None:
    images = [*packed.read(archive(tmp_path, b"one", "a:1")), *packed.read(archive(tmp_path, b"two", "b:1"))]
    assert written(images) == written(images[::-1])


def test_a_blob_that_the_reader_has_is_left_out(tmp_path: Path) -> None:
    (image,) = packed.read(archive(tmp_path))
    there = image.layers[0].digest
    assert set(names(written([image]))) - set(names(written([image], (there,)))) == {blob(there)}


def test_a_layout_of_links_is_the_same_image_under_another_name(tmp_path: Path) -> None:
    source = tmp_path / "layout"
    (image,) = packed.read(archive(tmp_path))
    unpack(written([image]), source)
    (there,) = packed.read(source)
    packed.lay_out([packed.Packed("other:1", there.manifest, there.config, there.layers)], tmp_path / "links")
    (again,) = packed.read(tmp_path / "links")
    assert (again.name, again.digest, again.file("/pause")) == ("other:1", image.digest, b"program")


def test_an_image_with_other_settings_keeps_its_layers(tmp_path: Path) -> None:
    (image,) = packed.read(archive(tmp_path))
    folder = tmp_path / "layout"
    unpack(written([image]), folder)
    packed.configure(folder, image.settings() | {"history": ["new"]})
    (changed,) = packed.read(folder)
    assert changed.settings() == image.settings() | {"history": ["new"]}
    assert changed.id != image.id
    assert [layer.digest for layer in changed.layers] == [layer.digest for layer in image.layers]


def unpack(content: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(folder, filter="data")


def test_of_an_index_with_several_architectures_ours_is_taken(tmp_path: Path) -> None:
    (image,) = packed.read(archive(tmp_path))
    folder = tmp_path / "layout"
    unpack(written([image]), folder)
    own = {"digest": image.digest, "platform": {"architecture": packed.architecture()}}
    inner = json.dumps({"manifests": [{"digest": "sha256:" + "0" * 64, "platform": {"architecture": "s390x"}}, own]})
    digest = f"sha256:{hashlib.sha256(inner.encode()).hexdigest()}"
    (folder / blob(digest)).write_text(inner)
    index = {"manifests": [{"digest": digest, "annotations": {"io.containerd.image.name": NAME}}]}
    (folder / "index.json").write_text(json.dumps(index))
    assert [found.digest for found in packed.read(folder)] == [image.digest]


def test_a_compressed_layer_is_known_by_its_own_digest(tmp_path: Path) -> None:
    plain = archive(tmp_path)
    squeezed = tmp_path / "squeezed.tar"
    with tarfile.open(plain) as source, tarfile.open(squeezed, "w") as target:
        for member in source:
            content = source.extractfile(member).read()
            if member.name == "layer.tar":
                content = gzip.compress(content, mtime=0)
                member.size = len(content)
            target.addfile(member, io.BytesIO(content))
    (image,) = packed.read(squeezed)
    assert image.layers[0].digest == f"sha256:{hashlib.sha256(image.layers[0].read()).hexdigest()}"
    assert json.loads(image.manifest)["layers"][0]["mediaType"].endswith("tar+gzip")
    assert image.file("/pause") == b"program"


def test_the_uppermost_layer_that_has_a_file_tells_it(tmp_path: Path) -> None:
    (lower,), (upper,) = packed.read(archive(tmp_path, b"old")), packed.read(archive(tmp_path, b"new"))
    both = packed.Packed(NAME, lower.manifest, lower.config, (*lower.layers, *upper.layers))
    assert both.file("/pause") == b"new"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"other": b""}, "neither index.json"),
        ({"index.json": b"{"}, "JSONDecodeError"),
        ({"index.json": b'{"manifests": []}'}, "without a name"),
        ({"manifest.json": b'[{"Config": "gone", "Layers": []}]'}, "gone"),
    ],
)
def test_what_is_no_image_is_refused_with_its_name_and_the_reason(
    tmp_path: Path, files: dict[str, bytes], says: str
) -> None:
    place = tmp_path / "broken.tar"
    with tarfile.open(place, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises(TestbedError, match=says) as error:
        packed.read(place)
    assert str(place) in str(error.value)


def test_an_image_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="build it first"):
        packed.read(tmp_path / "absent.tar")
