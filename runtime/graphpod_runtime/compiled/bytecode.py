"""Where Python keeps what it compiles of libraries that were installed without bytecode."""

import contextlib
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import stat
import sys
from collections.abc import MutableMapping
from pathlib import Path

FOLDER = Path("graphpod", "bytecode")
"""Under the user's caches: a folder for each installation of the library, by its key."""
MOST_KEPT = 3
"""Installations whose bytecode is kept, those that started last. One takes about 200 MB."""
ROOM = 256 << 20
"""Bytes that a file system must have free, several times what an engine imports. When a disk is full, Python 3.11 keeps
what it could write of a file, and every later import of that fails."""

_KEY = re.compile("[0-9a-f]{16}")

logger = logging.getLogger("graphpod.compiled")


def keep_bytecode(library: str = "torch", environment: MutableMapping[str, str] = os.environ) -> None:
    """Has Python keep the bytecode of what it imports in a folder of its user, if `library` is installed without: to
    compile torch and its compiler from source takes three times as long as to load them, at each start. Images have
    bytecode. Some installers make none, and PYTHONDONTWRITEBYTECODE keeps Python from making it later.
    Processes that this one starts with `environment` do the same.
    """
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None or sys.pycache_prefix is not None:
        return
    with contextlib.suppress(OSError, RuntimeError):  # there is no such folder, or no home
        if Path(importlib.util.cache_from_source(found.origin)).exists():
            return
        caches = Path(environment.get("XDG_CACHE_HOME", ""))
        above = (caches if caches.is_absolute() else Path.home() / ".cache") / FOLDER
        if not _only_ours_above(above):
            return
        folder = above / _key(found.origin)
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _ours(above) and os.path.lexists(folder) and not _is_folder(folder):
            _remove(folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        if _ours(above) and _ours(folder) and shutil.disk_usage(folder).free >= ROOM:
            sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False
            environment["PYTHONPYCACHEPREFIX"] = str(folder)
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            os.utime(folder)
            _prune(above)


def _key(origin: str) -> str:
    """Of one installation: this Python, the library's place and when it was installed there."""
    installed = sys.implementation.cache_tag, origin, Path(origin).stat().st_mtime_ns
    return hashlib.sha256(repr(installed).encode()).hexdigest()[:16]


def _ours(folder: Path) -> bool:
    """It is code that this process runs: no other user may have written it."""
    status = folder.lstat()
    others = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not others
    return ours and os.access(folder, os.W_OK)


def _prune(above: Path) -> None:
    """Removes what is in the folder besides the installations that started last. A process that still imports from one
    compiles again what it misses."""
    found = sorted(above.iterdir(), key=lambda path: path.lstat().st_mtime_ns, reverse=True)
    kept = [path for path in found if _KEY.fullmatch(path.name) and _is_folder(path)][:MOST_KEPT]
    for path in found:
        if path not in kept and _remove(path):
            logger.info("removed %s: no bytecode of an installation that started lately", path)


def _is_folder(path: Path) -> bool:
    """Not a file, nor a link to a folder."""
    return stat.S_ISDIR(path.lstat().st_mode)


def _remove(path: Path) -> bool:
    """Whether `path` has gone: a folder with all that is in it, a file, or a link without what it leads to."""
    if _is_folder(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()
    return not os.path.lexists(path)


def forget_bytecode(error: BaseException) -> None:
    """Removes the bytecode that is kept if `error` is that Python could not read a file of it, which would end each
    start: the next one makes it again."""
    prefix, last = sys.pycache_prefix, error.__traceback__
    if prefix is None or Path(prefix).parts[-3:-1] != FOLDER.parts or last is None:
        return
    while last.tb_next is not None:
        last = last.tb_next
    if last.tb_frame.f_code.co_name == "_compile_bytecode":  # importlib's
        shutil.rmtree(prefix, ignore_errors=True)
        logger.warning("removed %s, of which a file cannot be read; the next start makes it again", prefix)


def _only_ours_above(folder: Path) -> bool:
    """Whether no user but this one and root can put another folder in the place of `folder`: all that lies above it is
    theirs, and others write there, if at all, only what they alone can rename. A group that this user's files have may:
    it could change all of them. What does not exist yet is not made in another user's home."""
    there = [path for path in folder.parents if path.exists()]
    for path in {*there, there[0].resolve(), *there[0].resolve().parents}:
        status = path.stat()
        groups = 0 if status.st_gid == os.getegid() else stat.S_IWGRP
        others = status.st_mode & (groups | stat.S_IWOTH)
        if status.st_uid not in (os.geteuid(), 0) or (others and not status.st_mode & stat.S_ISVTX):
            return False
    return True
