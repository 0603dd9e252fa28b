"""The image of the fault tests differs from its original in name and environment only."""

import io
import json
import tarfile
from pathlib import Path

from tests.e2e.variant import with_environment


def archive(path: Path) -> Path:
    parts = {
        "abc.json": json.dumps({"config": {"Env": ["A=1"], "User": "65532"}}),
        "layer.tar": "the layer",
        "manifest.json": json.dumps([{"Config": "abc.json", "RepoTags": ["old:1"], "Layers": ["layer.tar"]}]),
    }
    with tarfile.open(path, "w") as tar:
        for name, text in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def test_it_has_the_layers_of_the_original_and_one_variable_more(tmp_path: Path) -> None:
    out = with_environment(archive(tmp_path / "in.tar"), tmp_path / "out.tar", "new:2", FAULT="x")
    with tarfile.open(out) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))
        config = json.load(tar.extractfile(manifest["Config"]))
        assert tar.extractfile("layer.tar").read() == b"the layer"
    assert manifest["RepoTags"] == ["new:2"]
    assert manifest["Layers"] == ["layer.tar"]
    assert config == {"config": {"Env": ["A=1", "FAULT=x"], "User": "65532"}}
