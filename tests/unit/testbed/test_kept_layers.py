"""Layers that are unpacked once a machine: what of an image is kept, and how a node begins with it."""

import json
import os
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.images import packed
from testbed.nodes import kept_layers
from testbed.nodes.kept_layers import CONTENT, DATABASE, OVERLAY, lay, shortened
from testbed.nodes.node_images import NodeImages


def image(place: Path, *sizes: int) -> packed.Packed:
    """With layers of so many bytes."""
    file = place / "config"
    diffs = [f"sha256:{n:064}" for n in range(len(sizes))]
    file.write_text(json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"diff_ids": diffs}}))
    layers = tuple(packed.Blob(f"sha256:{n:064}", size, file) for n, size in enumerate(sizes))
    described = [{"digest": layer.digest, "size": layer.size} for layer in layers]
    manifest = {"schemaVersion": 2, "config": {"digest": "sha256:0", "size": 1}, "layers": described}
    return packed.Packed(
        "toy", json.dumps(manifest).encode(), packed.Blob("sha256:0", file.stat().st_size, file), layers
    )


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHPOD_STATE", str(tmp_path))
    return tmp_path


def kept(state: Path, name: str) -> Path:
    """What a containerd that imported one image left, in short."""
    folder = state / "layers" / name
    for file in (CONTENT / "blob", DATABASE, OVERLAY / "metadata.db", OVERLAY / "snapshots" / "1" / "fs" / "program"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(name)
    return folder


def test_what_lies_above_the_last_large_layer_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_layers, "LARGE", 100)
    whole = image(tmp_path, 100, 1, 200, 99)
    short = shortened(whole, tmp_path)
    assert short is not None
    assert short.layers == whole.layers[:3]
    manifest, settings = json.loads(short.manifest), short.settings()
    assert manifest["layers"] == json.loads(whole.manifest)["layers"][:3]
    assert manifest["config"]["digest"] == short.config.digest
    assert settings["rootfs"]["diff_ids"] == whole.settings()["rootfs"]["diff_ids"][:3]
    assert shortened(image(tmp_path, 99), tmp_path) is None


def test_two_images_of_the_same_large_layers_are_kept_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_layers, "LARGE", 100)
    one, other = (shortened(image(tmp_path, 100, last), tmp_path) for last in (1, 2))
    assert one is not None
    assert other is not None
    assert (one.name, one.digest) == (other.name, other.digest)


def test_a_node_begins_with_links_to_layers_and_a_database_of_its_own(state: Path) -> None:
    folder = kept(state, "kept-1")
    lay(state / "node")
    assert (state / "node" / CONTENT / "blob").samefile(folder / CONTENT / "blob")
    layer = state / "node" / OVERLAY / "snapshots" / "1"
    assert layer.is_symlink()
    assert (layer / "fs" / "program").read_text() == "kept-1"
    for file in (DATABASE, OVERLAY / "metadata.db"):
        assert (state / "node" / file).read_text() == "kept-1"
        assert not (state / "node" / file).samefile(folder / file)


def test_where_nothing_is_kept_a_node_begins_with_nothing(state: Path) -> None:
    lay(state / "node")
    assert not (state / "node").exists()


def test_an_image_that_cannot_be_imported_ends_the_containerd_that_was_to_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended, programs = tmp_path / "began", tmp_path / "ended", tmp_path / "programs"
    programs.mkdir()
    # In the place of `unshare --mount containerd`: notes that it was ended.
    noted = f"trap 'kill $!; echo > {ended}; exit 0' TERM"
    (programs / "unshare").write_text(f"#!/bin/sh\n{noted}\nsleep 9 &\necho > {began}\nwait\n")
    (programs / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(NodeImages, "answers", lambda images: began.exists())
    monkeypatch.setattr(NodeImages, "send", full_disk)
    with pytest.raises(TestbedError, match="no space left"):
        kept_layers._import([image(tmp_path, 1)], tmp_path)
    assert ended.exists()


def full_disk(images: NodeImages, wanted: object) -> int:
    raise TestbedError("no space left on device")
