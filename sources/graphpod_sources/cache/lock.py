"""One writer for each folder: a lock on a file that is never removed, held as long as the process lives."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

LOCKS = ".graphpod-locks"
LOOK = 1.0  # s
UNLOCKABLE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Answers of file systems that have no locks. The Job's name keeps out a second writer there."""


class Lock:
    """The lock of the folder `name` of a cache. Free again when the process ends, however it ends."""

    def __init__(self, root: Path, name: str) -> None:
        self._path = root / LOCKS / f"{name}.lock"
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take it at once; False when another process has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            if error.errno not in UNLOCKABLE:
                os.close(descriptor)
                raise
        self._descriptor = descriptor
        return True

    def wait(self, pause: Callable[[float], object]) -> None:
        """Take it, when it is free; `pause` is called with seconds until then."""
        while not self.take():
            pause(LOOK)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
