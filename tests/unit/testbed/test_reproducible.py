"""The comparison of two builds: what it names when they are not the same."""

from pathlib import Path

from testbed.images import packed
from testbed.images.reproducible import archive_hash, differing
from testbed.nodes.pause import docker_archive


def image(tmp_path: Path, program: bytes, name: str = "toy:1") -> packed.Packed:
    place = tmp_path / f"{program.decode()}.tar"
    place.write_bytes(docker_archive(program, "amd64", name))
    return packed.read(place)[0]


def test_two_builds_with_the_same_content_do_not_differ(tmp_path: Path) -> None:
    assert differing(image(tmp_path, b"same"), image(tmp_path, b"same")) == []


def test_a_file_that_differs_is_named_with_its_layer(tmp_path: Path) -> None:
    found = differing(image(tmp_path, b"one"), image(tmp_path, b"two"))
    assert found == ["the configuration", "layer 0: pause"]


def test_the_hash_is_that_of_the_file_that_would_be_saved(tmp_path: Path) -> None:
    one, again, two = (tmp_path / name for name in ("one", "again", "two"))
    packed.lay_out([laid(tmp_path, b"one")], one)
    packed.lay_out([laid(tmp_path, b"one")], again)
    packed.lay_out([laid(tmp_path, b"two")], two)
    assert archive_hash(one) == archive_hash(again) != archive_hash(two)


def laid(tmp_path: Path, program: bytes) -> packed.Packed:
    """The image with blobs in files of their own, as a layout has them."""
    found = image(tmp_path, program)
    parts = []
    for number, blob in enumerate((found.config, *found.layers)):
        place = tmp_path / f"{program.decode()}-{number}"
        place.write_bytes(blob.read())
        parts.append(packed.Blob(blob.digest, blob.size, place))
    return packed.Packed(found.name, found.manifest, parts[0], tuple(parts[1:]))
