"""A folder of what one start makes and later ones need not: compiled functions, traces. One file each.

An entry is code that runs in the engine, so it is used only if its content is the one that its name tells and nobody
but the engine's own user and root can have written it. Entries appear by renaming, so any number of engines may share
a folder. In one that others may write, too, an entry could still be exchanged between that look and its loading: name
a folder that only engines can write.
"""

import contextlib
import hashlib
import logging
import os
import stat
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger("graphpod.compiled")

FOLDER = "GRAPHPOD_COMPILE_CACHE"
"""Names the folder in the environment."""

Loaded = TypeVar("Loaded")


class Unusable(ValueError):
    """Why an entry is passed over."""


def folder_of(environment: Mapping[str, str] = os.environ) -> Path:
    """GRAPHPOD_COMPILE_CACHE; without it `graphpod` beside inductor's own cache, or under the user's caches."""
    if named := environment.get(FOLDER):
        return Path(named)
    if inductor := environment.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(inductor, "graphpod")
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache", "graphpod", "compiled")


class Entries:
    """Those in `folder`, each named after what it is and the digest of its content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def found(self, name: str, load: Callable[[Path], Loaded]) -> Loaded | None:
        """What `load` makes of an entry of `name`; None when there is none that can be used. `load` may raise Unusable,
        OSError or RuntimeError: then a line in the log says why, and the entry is passed over.
        """
        for path in sorted(self._folder.glob(f"{name}-*")):
            try:
                _check(path)
                return load(path)
            except (OSError, RuntimeError, Unusable) as error:
                logger.warning("%s cannot be used and is made again: %s", path, error)
        return None

    def keep(self, name: str, content: bytes, suffix: str) -> None:
        """`content` as an entry, at once or not at all. Without a place to write the engine still runs: its next start
        makes it again.
        """
        partial = self._folder / f".{uuid.uuid4().hex}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            partial.chmod(0o644)  # whatever the umask: one that others may write is of no use
            partial.rename(self._folder / f"{name}-{_digest(content)}{suffix}")
        except OSError as error:
            logger.warning("%s is not kept for the next start: %s; name a folder in %s", name, error, FOLDER)
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def _check(path: Path) -> None:
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        raise Unusable(
            f"it is of user {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}: another user can have written it, "
            "and it is code"
        )
    if _digest(path.read_bytes()) != path.stem.rpartition("-")[2]:
        raise Unusable("its content is not what its name says")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
