"""The images of one node, in its containerd's store: what is there, and how what is missing gets in.

An import sends only the blobs that no image there has. containerd takes an archive without them as long as its content
store has them, and it keeps what an image refers to; so a change of code costs its own layers, not the libraries below.
"""

import json
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import Any

from testbed.command import TIED, run
from testbed.errors import TestbedError
from testbed.images import packed

IMPORT_LIMIT = 300.0  # s; 1 GB took 15 s


@dataclass(frozen=True)
class NodeImages:
    socket: Path  # containerd's

    def load(self, place: Path) -> int | None:
        """Imports the images in a layout or archive; bytes sent, or None when all are there. Raises `TestbedError`."""
        wanted = packed.read(place)
        there = listed(self.ctr("images", "ls"))
        if all(there.get(image.name) == image.digest for image in wanted):
            return None
        known = {blob for digest in set(there.values()) for blob in self._blobs(digest)}
        return self.send(wanted, known)

    def answers(self) -> bool:
        """Does containerd? It listens before it does."""
        if not self.socket.exists():
            return False
        try:
            self.ctr("version", timeout=5)
        except TestbedError:
            return False
        return True

    def _blobs(self, digest: str) -> set[str]:
        """What an image there refers to; nothing of one that is not a plain manifest."""
        manifest = json.loads(self.ctr("content", "get", digest))
        return {part["digest"] for part in (manifest.get("config"), *manifest.get("layers", ())) if part}

    def send(self, wanted: Iterable[packed.Packed], known: Collection[str] = ()) -> int:
        """Imports these images less the blobs that are `known` there; bytes sent. Raises `TestbedError`."""
        command = [*TIED, *self._command("images", "import", "-")]
        with Popen(command, stdin=PIPE, stdout=PIPE, stderr=STDOUT) as importing:
            assert importing.stdin
            assert importing.stdout
            limit = threading.Timer(IMPORT_LIMIT, importing.kill)
            limit.start()
            try:
                with importing.stdin as archive:
                    sent = packed.write(wanted, archive, known)
                ended_early = False
            except BrokenPipeError:
                sent, ended_early = 0, True
            said = importing.stdout.read()
            limit.cancel()
        if importing.returncode != 0 or ended_early:
            raise TestbedError(
                f"`{' '.join(map(str, command))}` ended with status {importing.returncode}:\n{said.decode().strip()}"
            )
        return sent

    def ctr(self, *args: str, timeout: float = 60.0) -> str:
        return run(self._command(*args), timeout=timeout)

    def _command(self, *args: str) -> list[str]:
        return ["ctr", "-a", str(self.socket), "-n", "k8s.io", *args]


def listed(table: str) -> dict[str, str]:
    """Digest by name in what `ctr images ls` prints: REF TYPE DIGEST SIZE PLATFORMS LABELS."""
    rows: list[Any] = [line.split() for line in table.splitlines()[1:] if line.strip()]
    return {row[0]: row[2] for row in rows}
