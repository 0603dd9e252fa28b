"""A folder of what one start makes and later ones need not: compiled functions, traces. One file each.

An entry is code that runs in the engine. It is used only if its content has the digest in its name, if it belongs to
the engine's own user or to root, and if neither its group nor others can write it: in a pod the group is fsGroup, which
every container of the pod has, and every pod that mounts the same claim with that number. What was checked is what is
loaded: an entry is opened once, and a folder that others can write lets them remove entries, not change what runs.
Entries appear by renaming, so any number of engines may share a folder.

The kubelet gives fsGroup write access to all that a volume holds when it first mounts it (OnRootMismatch): entries from
before are made again then, and stay usable from then on.
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
    """GRAPHPOD_COMPILE_CACHE; without it `graphpod` next to inductor's own cache, or under the user's caches."""
    if named := environment.get(FOLDER):
        return Path(named)
    if inductor := environment.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(inductor, "graphpod")
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache", "graphpod", "compiled")


class Entries:
    """Those in `folder`, each named after what it is and the digest of its content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def found(self, name: str, load: Callable[[bytes], Loaded]) -> Loaded | None:
        """What `load` makes of the content of an entry of `name`; None without a usable one. `load` may
        raise Unusable, OSError or RuntimeError: then a line in the log says why, and the entry is passed over.
        """
        for path in sorted(self._folder.glob(f"{name}-*")):
            try:
                return load(_checked(path))
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


def _checked(path: Path) -> bytes:
    """The content of an entry that only the engine's user and root can have written. Unusable for any other."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Unusable("it is no file")
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Unusable(
                f"user {status.st_uid} owns it with mode {stat.S_IMODE(status.st_mode):o}: others than this engine's "
                f"user {os.geteuid()} can have written it, and it is code; chmod 644 it if you trust it"
            )
        content = file.read()
    if _digest(content) != path.stem.rpartition("-")[2]:
        raise Unusable("its content is not what its name says")
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
