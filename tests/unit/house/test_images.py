"""When an image is built again, and what it says when it cannot be."""

import io
import json
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from graphpod_policy import __version__
from testbed import images
from testbed.errors import TestbedError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small work tree with what the operator image is made of."""
    for name in ("Dockerfile", ".dockerignore", "locks/operator.txt", "operator/graphpod_operator/main.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "policy/graphpod_policy").mkdir(parents=True)
    return tmp_path


def key(tree: Path) -> str:
    return images.content_key(images.IMAGES["operator"], tree)


def test_the_key_stays_when_only_caches_and_foreign_files_change(tree: Path) -> None:
    before = key(tree)
    (tree / "operator/graphpod_operator/__pycache__").mkdir()
    (tree / "operator/graphpod_operator/__pycache__/main.pyc").write_text("x")
    (tree / "README.md").write_text("x")
    assert key(tree) == before


@pytest.mark.parametrize("name", ["Dockerfile", "locks/operator.txt", "operator/graphpod_operator/main.py"])
def test_the_key_changes_with_a_file_the_image_is_made_of(tree: Path, name: str) -> None:
    before = key(tree)
    (tree / name).write_text("changed")
    assert key(tree) != before


def test_the_key_changes_when_a_file_moves(tree: Path) -> None:
    before = key(tree)
    (tree / "operator/graphpod_operator/main.py").rename(tree / "operator/graphpod_operator/cli.py")
    assert key(tree) != before


def test_a_missing_source_is_named(tree: Path) -> None:
    (tree / "locks/operator.txt").unlink()
    with pytest.raises(TestbedError, match=r"locks/operator\.txt does not exist"):
        key(tree)


def test_the_tags_carry_the_version() -> None:
    assert images.IMAGES["operator"].tag == f"graphpod.dev/operator:{__version__}"
    assert images.IMAGES["runtime"].tag == f"graphpod.dev/runtime:{__version__}-cpu"
    assert __version__ == version("graphpod")


def test_an_unknown_image_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TestbedError, match="there are: operator, runtime, demo-weights"):
        images.build("operater")


def test_the_weights_image_is_refused_without_weights() -> None:
    with pytest.raises(TestbedError, match="weights=<folder"):
        images.build("demo-weights")


def test_the_size_is_the_sum_of_the_layers(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for name, body in {
            "a/layer.tar": b"x" * 1000,
            "b.tar": b"x" * 24,
            "manifest.json": json.dumps([{"Layers": ["a/layer.tar", "b.tar"]}]).encode(),
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    assert images.unpacked_bytes(archive) == 1024
