"""Where Python keeps what it compiles of libraries that were installed without bytecode."""

import contextlib
import importlib.util
import os
import stat
import sys
from collections.abc import MutableMapping
from pathlib import Path

FOLDER = Path("graphpod", "bytecode")
"""Under the user's caches."""


def keep_bytecode(library: str = "torch", environment: MutableMapping[str, str] = os.environ) -> None:
    """Has Python keep the bytecode of what it imports in a folder of its user, if `library` is installed without: to
    compile torch and its compiler from source takes three times as long as to load them, at each start. Images have
    bytecode. Some installers make none, and PYTHONDONTWRITEBYTECODE keeps Python from making it later.
    Processes that this one starts with `environment` do the same.
    """
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None or sys.pycache_prefix is not None:
        return
    if Path(importlib.util.cache_from_source(found.origin)).exists():
        return
    with contextlib.suppress(OSError, RuntimeError):  # there is no such folder, or no home
        folder = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        # It is code that this process runs: no other user may have written it.
        others = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not others:
            sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False
            environment["PYTHONPYCACHEPREFIX"] = str(folder)
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
