"""Bytecode of libraries that were installed without."""

import importlib.util
import os
import stat
import sys
from pathlib import Path

import pytest

from graphpod_runtime.compiled.bytecode import FOLDER, keep_bytecode

LIBRARY = "a_library_for_this_test"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One without bytecode, in a process that keeps none."""
    source = tmp_path / LIBRARY / "__init__.py"
    source.parent.mkdir()
    source.write_text("VALUE = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, LIBRARY, raising=False)
    return source


def _asked(tmp_path: Path) -> dict[str, str]:
    """What the environment is afterwards, without the folder of caches."""
    environment = {"XDG_CACHE_HOME": str(tmp_path / "caches"), "PYTHONDONTWRITEBYTECODE": "1"}
    keep_bytecode(LIBRARY, environment)
    del environment["XDG_CACHE_HOME"]
    return environment


def test_a_library_without_bytecode_is_compiled_into_the_users_folder(library: Path, tmp_path: Path) -> None:
    environment = _asked(tmp_path)

    folder = tmp_path / "caches" / FOLDER
    assert environment == {"PYTHONPYCACHEPREFIX": str(folder)}, "processes that this one starts do the same"
    assert sys.pycache_prefix == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    importlib.import_module(LIBRARY)
    assert len(list(folder.rglob("__init__*.pyc"))) == 1
    assert not (library.parent / "__pycache__").exists()


def test_a_library_with_bytecode_is_left_alone(library: Path, tmp_path: Path) -> None:
    there = Path(importlib.util.cache_from_source(str(library)))
    there.parent.mkdir()
    there.write_bytes(b"bytecode")

    assert _asked(tmp_path) == {"PYTHONDONTWRITEBYTECODE": "1"}

    assert (sys.pycache_prefix, sys.dont_write_bytecode) == (None, True)
    assert not (tmp_path / "caches").exists()


def test_a_folder_that_was_chosen_stays(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", "/elsewhere")

    _asked(tmp_path)

    assert (sys.pycache_prefix, sys.dont_write_bytecode) == ("/elsewhere", True)


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_can_write_is_not_used(library: Path, tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "caches" / FOLDER
    folder.mkdir(parents=True)
    folder.chmod(mode)

    _asked(tmp_path)

    assert (sys.pycache_prefix, sys.dont_write_bytecode) == (None, True)


def test_a_link_is_not_used(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "caches" / FOLDER
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tmp_path)

    _asked(tmp_path)

    assert sys.pycache_prefix is None


def test_without_a_place_python_compiles_as_before(library: Path, tmp_path: Path) -> None:
    (tmp_path / "caches").write_text("no folder")

    _asked(tmp_path)

    assert sys.pycache_prefix is None


def test_a_library_that_is_not_installed_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)

    keep_bytecode("no_such_library_at_all", dict(os.environ))

    assert sys.pycache_prefix is None
