"""The kubectl plugin: the archive that the manifest names, and the program in it."""

import os
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import yaml

from graphpod_policy import __version__
from plugin.archive import HERE, archive, sha256

MANIFEST = yaml.safe_load((HERE / "graphpod.yaml").read_text())


def test_the_manifest_names_the_hash_of_the_archive_and_the_version() -> None:
    """After a change of the program: the new hash into plugin/graphpod.yaml."""
    (platform,) = MANIFEST["spec"]["platforms"]
    assert platform["sha256"] == sha256()
    assert MANIFEST["spec"]["version"] == f"v{__version__}"
    with zipfile.ZipFile(BytesIO(archive())) as file:
        assert platform["bin"] in file.namelist()
        assert file.getinfo(platform["bin"]).external_attr >> 16 & 0o111 == 0o111


def test_the_plugin_hands_its_arguments_on(tmp_path: Path) -> None:
    fake = tmp_path / "graphpod"
    fake.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 4\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [HERE / "kubectl-graphpod", "why", "a b"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (4, "why|a b|")


def test_without_graphpod_it_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", HERE / "kubectl-graphpod"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 127
    assert "make venv" in done.stderr
