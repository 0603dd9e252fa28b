"""Bytecode of libraries that were installed without."""

import importlib.util
import logging
import os
import resource
import shutil
import stat
import sys
from pathlib import Path

import pytest

from graphpod_runtime.compiled.bytecode import FOLDER, MOST_KEPT, ROOM, forget_bytecode, keep_bytecode

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

    (folder,) = (tmp_path / "caches" / FOLDER).iterdir()
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


@pytest.mark.parametrize("above", ["caches", "caches/graphpod"])
@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_folder_that_others_can_replace_is_not_used(
    library: Path, tmp_path: Path, above: str, through_a_link: bool
) -> None:
    real = tmp_path / "elsewhere" if through_a_link else tmp_path / "caches"
    (real / FOLDER).mkdir(parents=True)
    (real / FOLDER).chmod(0o700)
    if through_a_link:
        (tmp_path / "caches").symlink_to(real)
    (tmp_path / above).chmod(0o777)

    _asked(tmp_path)

    assert sys.pycache_prefix is None


def test_a_relative_folder_of_caches_is_none(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()

    keep_bytecode(LIBRARY, {"XDG_CACHE_HOME": "caches"})

    assert sys.pycache_prefix is not None
    assert Path(sys.pycache_prefix).parent == tmp_path / "home" / ".cache" / FOLDER


def test_a_disk_that_is_nearly_full_gets_nothing(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=ROOM - 1))

    _asked(tmp_path)

    assert sys.pycache_prefix is None


def test_bytecode_that_was_written_in_part_is_removed_with_the_start_that_meets_it(
    library: Path, tmp_path: Path
) -> None:
    library.write_text("".join(f"def f{number}(): return {number}\n" for number in range(100)))
    _asked(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))  # a full disk ends a write as this does
    try:
        importlib.import_module(LIBRARY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (kept,) = (tmp_path / "caches" / FOLDER).rglob("__init__*.pyc")
    kept.write_bytes(kept.read_bytes()[:1024])  # later versions of Python keep none
    del sys.modules[LIBRARY]
    forget_bytecode(RuntimeError("of something else"))
    assert kept.exists()

    with pytest.raises(EOFError) as failed:
        importlib.import_module(LIBRARY)
    forget_bytecode(failed.value)

    assert not list((tmp_path / "caches" / FOLDER).iterdir())
    importlib.import_module(LIBRARY)


def test_an_installation_has_a_folder_of_its_own_and_those_that_started_last_are_kept(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above, made = tmp_path / "caches" / FOLDER, []
    for second in range(MOST_KEPT + 2):
        os.utime(library, (second, second))  # installed again
        monkeypatch.setattr(sys, "pycache_prefix", None)
        _asked(tmp_path)
        made.append(Path(str(sys.pycache_prefix)))
        os.utime(made[-1], (100 + second, 100 + second))
    assert len(set(made)) == len(made)
    assert sorted(above.iterdir()) == sorted(made[-MOST_KEPT:])
    monkeypatch.setattr(sys, "pycache_prefix", None)
    os.utime(library, (2, 2))
    _asked(tmp_path)
    assert sys.pycache_prefix == str(made[2]), "the same installation finds what it wrote"
    (above / "usr").mkdir()  # of an earlier version, by the paths of the sources
    (above / "usr" / "x.pyc").write_bytes(b"")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    _asked(tmp_path)
    assert not (above / "usr").exists()


def test_files_and_links_where_folders_belong_go_and_take_the_place_of_no_installation(
    library: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    above, elsewhere = tmp_path / "caches" / FOLDER, tmp_path / "elsewhere"
    _asked(tmp_path)
    (folder,) = above.iterdir()
    folder.rmdir()
    folder.write_bytes(b"a file by the name of the installation's folder")
    elsewhere.mkdir()
    for number in range(MOST_KEPT):
        (above / f"{number:016x}").write_bytes(b"")
    (above / "core.1234").write_bytes(b"")
    (above / f"{MOST_KEPT:016x}").symlink_to(elsewhere)
    caplog.set_level(logging.INFO)

    monkeypatch.setattr(sys, "pycache_prefix", None)
    _asked(tmp_path)

    assert sys.pycache_prefix == str(folder)
    assert list(above.iterdir()) == [folder]
    assert elsewhere.is_dir()
    assert caplog.text.count("removed ") == MOST_KEPT + 2
    monkeypatch.setattr(sys, "pycache_prefix", None)
    _asked(tmp_path)
    assert caplog.text.count("removed ") == MOST_KEPT + 2, "what has gone is not removed again"


def test_without_a_place_python_compiles_as_before(library: Path, tmp_path: Path) -> None:
    (tmp_path / "caches").write_text("no folder")

    _asked(tmp_path)

    assert sys.pycache_prefix is None


def test_a_library_that_is_not_installed_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)

    keep_bytecode("no_such_library_at_all", dict(os.environ))

    assert sys.pycache_prefix is None
