"""Room for a model on the claim: what is free, and evictions that make more."""

import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from graphpod_sources import manifest
from graphpod_sources.cache.contents import Kept, contents
from graphpod_sources.cache.eviction import leaving
from graphpod_sources.cache.lock import Lock
from graphpod_sources.names import size
from graphpod_sources.problem import Problem, Reason

RESERVE = 64 << 20
"""Bytes that stay free: a disk without any fails in ways of its own."""


@dataclass(frozen=True, slots=True)
class Room:
    """The cache at `root`, seen by the fetch of its folder `name`."""

    root: Path
    name: str
    limit: int | None
    keep: Collection[str]

    def free(self) -> int:
        """Bytes that may still be written."""
        return shutil.disk_usage(self.root).free - RESERVE

    def make(self, needed: int, report: Callable[[str], None]) -> list[Kept]:
        """Evict until `needed` more bytes fit; the folders that left. Raises `Problem` (DiskFull).

        A folder that another fetch writes is not taken: its lock is held.
        """
        turn = Lock(self.root, ".evict")
        if self.limit is None:
            leaving([], name=self.name, keep=(), needed=needed, limit=None, free=self.free(), cache=str(self.root))
            return []
        turn.wait(sleep)
        busy: set[str] = set()
        gone: list[Kept] = []
        try:
            while True:
                plan = leaving(
                    contents(self.root),
                    name=self.name,
                    keep={*self.keep, *busy},
                    needed=needed,
                    limit=self.limit,
                    free=self.free(),
                    cache=str(self.root),
                )
                if not plan:
                    return gone
                for folder in plan:
                    if not self._remove(folder.name):
                        busy.add(folder.name)
                        break
                    report(f"evicted {folder.name}: {size(folder.bytes)}, last used {folder.used}")
                    gone.append(folder)
        finally:
            turn.release()

    def _remove(self, name: str) -> bool:
        """Remove a folder, its manifest first: what is left by a kill is no complete model. False: it is in use."""
        lock = Lock(self.root, name)
        if not lock.take():
            return False
        try:
            (self.root / name / manifest.NAME).unlink(missing_ok=True)
            shutil.rmtree(self.root / name)
        finally:
            lock.release()
        return True

    def check(self) -> None:
        """Raise `Problem` (DiskFull) when the disk has become too full during a download."""
        if (free := self.free()) < 0:
            raise Problem(
                Reason.DiskFull,
                f"{self.root}: {size(free + RESERVE)} are free, less than the {size(RESERVE)} that stay so",
            )
