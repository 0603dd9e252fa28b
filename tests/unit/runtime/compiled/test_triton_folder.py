"""One folder of Triton's kernels for all starts."""

import os
from pathlib import Path

import pytest

from graphpod_runtime.compiled.triton_folder import name_triton_folder


def test_triton_keeps_its_own_default_where_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    environment: dict[str, str] = {}
    name_triton_folder(environment)
    assert environment == {"TRITON_CACHE_DIR": str(tmp_path / ".triton" / "cache")}


def test_it_lies_in_the_folder_of_torchs_compiler_or_in_tritons_home(tmp_path: Path) -> None:
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TRITON_HOME": str(tmp_path / "home")}
    name_triton_folder(environment)
    assert environment.pop("TRITON_CACHE_DIR") == str(tmp_path / "inductor" / "triton")
    del environment["TORCHINDUCTOR_CACHE_DIR"]
    name_triton_folder(environment)
    assert environment["TRITON_CACHE_DIR"] == str(tmp_path / "home" / ".triton" / "cache")


def test_what_a_user_names_stays(tmp_path: Path) -> None:
    environment = {"TRITON_CACHE_DIR": "", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    name_triton_folder(environment)
    assert environment["TRITON_CACHE_DIR"] == ""
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_to_write_torch_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    environment = {"TRITON_HOME": str(tmp_path / "file")}
    name_triton_folder(environment)
    assert "TRITON_CACHE_DIR" not in environment
    environment = {"TRITON_HOME": str(tmp_path)}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    name_triton_folder(environment)
    assert "TRITON_CACHE_DIR" not in environment
