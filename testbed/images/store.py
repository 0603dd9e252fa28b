"""Where images are built: a store of buildah's of our own, and next to it a folder of finished images.

The machine's own images are not touched, and the folder can simply be deleted. A finished image is an OCI layout with
uncompressed layers, which lie once for all images in `blobs/`: a change of code adds kilobytes, not an archive.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from testbed.command import TIED, run
from testbed.errors import TestbedError
from testbed.images import packed
from testbed.paths import cache_root
from testbed.process import tail

RUN_ROOT = Path("/run/graphpod/buildah")
BUILD_LIMIT = 3600.0  # s; a slow line to the package index
COPY_LIMIT = 600.0  # s
Report = Callable[[str], None]


@dataclass(frozen=True)
class Store:
    root: Path
    run_root: Path = RUN_ROOT

    @property
    def images(self) -> Path:
        folder = self.root / "images"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def buildah(self, *args: str | Path, timeout: float = 300.0) -> str:
        """Standard output of `buildah args` on this store."""
        return run([*self._command("buildah"), *args], timeout=timeout)

    def build(self, arguments: Sequence[str | Path], log: Path) -> None:
        """`buildah build arguments`, its words in `log`. Raises `TestbedError` with their end."""
        command = [str(word) for word in (*TIED, *self._command("buildah"), "build", *arguments)]
        with log.open("w") as out:
            try:
                done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=BUILD_LIMIT)
            except subprocess.TimeoutExpired as e:
                raise TestbedError(f"not built within {BUILD_LIMIT:.0f} s\n{tail(log)}") from e
        if done.returncode != 0:
            raise TestbedError(f"buildah failed with status {done.returncode}\n{tail(log)}")

    def has(self, name: str) -> bool:
        return bool(self.buildah("images", "--quiet", "--filter", f"reference={name}").strip())

    def keep(self, name: str, folder: Path, extra: Mapping[str, str]) -> None:
        """Lays image `name` out in `folder`; layers that any kept image has are not written again.

        `extra`: files of the image that shall lie in the folder too, the path of each by its name there.

        buildah notes which image each step began from, by ids that depend on what else the store has built: left out,
        since the same sources are to give the same image.
        """
        partial = folder.with_name(folder.name + ".partial")
        for left in (partial, folder):  # by one who was killed
            if left.exists():
                shutil.rmtree(left)
        partial.mkdir(parents=True)
        (self.images / "blobs").mkdir(exist_ok=True)
        (partial / "blobs").symlink_to("../blobs")
        source = f"containers-storage:[{self._driver()}@{self._graph}+{self.run_root}]{name}"
        to = f"oci:{partial}:{name}"
        run(["skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers", source, to], timeout=COPY_LIMIT)
        settings = packed.read(partial)[0].settings()
        for step in settings["history"]:
            step.pop("comment", None)
        packed.configure(partial, settings)
        (image,) = packed.read(partial)
        for file, path in extra.items():
            (partial / file).write_bytes(image.file(path))
        partial.rename(folder)

    def forget(self, *folders: Path) -> None:
        """Removes kept images, and the blobs that no other kept image has."""
        for folder in folders:
            shutil.rmtree(folder)
        kept = [image for index in self.images.glob("*/index.json") for image in packed.read(index.parent)]
        wanted = {b for image in kept for b in (image.digest, image.config.digest, *(x.digest for x in image.layers))}
        for blob in (self.images / "blobs" / "sha256").glob("*"):
            if f"sha256:{blob.name}" not in wanted:
                blob.unlink()

    def drop_layers(self) -> None:
        """Removes what buildah keeps, finished images excepted; the next build starts from nothing."""
        while mounted := self._mounts():  # a build that was cut short leaves some
            run(["umount", "--lazy", mounted[-1]])
        for place in (self._graph, self.run_root):
            if place.exists():
                shutil.rmtree(place)

    @contextmanager
    def locked(self, report: Report) -> Iterator[None]:
        """One build at a time per store; the lock goes with its process."""
        with (self.images / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("images: another build is running, waiting for it …")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _mounts(self) -> list[str]:
        places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        return [place for place in places if place.startswith((f"{self._graph}/", f"{self.run_root}/"))]

    @property
    def _graph(self) -> Path:
        return self.root / "buildah"

    def _command(self, program: str) -> list[str | Path]:
        return [program, "--root", self._graph, "--runroot", self.run_root, "--storage-driver", self._driver()]

    def _driver(self) -> str:
        return _driver(self._graph, self.run_root)


def default_store() -> Store:
    return Store(cache_root())


@cache
def _driver(graph: Path, run_root: Path) -> str:
    """overlay where the kernel and the cache's file system allow it, else vfs (slower, larger, works everywhere)."""
    if os.geteuid() != 0:
        raise TestbedError("images are built as root: run the same command with sudo")
    place: list[str | Path] = ["buildah", "--root", graph, "--runroot", run_root]
    with suppress(TestbedError):
        run([*place, "--storage-driver", "overlay", "info"])
        return "overlay"
    run([*place, "--storage-driver", "vfs", "info"])
    return "vfs"
