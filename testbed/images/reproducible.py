"""Do the same sources give the same image? `python3 -m testbed.images.reproducible operator runtime`.

Each image is built twice from nothing, in two stores that share no layer and no base, and the two archives are compared
byte for byte. Minutes, gigabytes and the package indexes are needed; both stores are removed afterwards.
"""

import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

from testbed.errors import TestbedError
from testbed.images import build as images
from testbed.images import packed
from testbed.images.store import Report, Store
from testbed.paths import cache_root


class Sink:
    """A file that keeps nothing but the hash of what is written to it."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.hash.update(content)
        return len(content)


def archive_hash(folder: Path) -> str:
    """sha256 of the one file that `images.save` would write."""
    sink = Sink()
    packed.write(packed.read(folder), sink)  # type: ignore[arg-type]  # all that tarfile needs is write
    return sink.hash.hexdigest()


def differing(one: packed.Packed, other: packed.Packed) -> list[str]:
    """What is not the same in two builds of an image: settings, and files by layer."""
    found = [] if one.config.read() == other.config.read() else ["the configuration"]
    for number, (a, b) in enumerate(zip(one.layers, other.layers, strict=True)):
        if a.digest != b.digest:
            left, right = entries(a), entries(b)
            changed = sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
            found += [f"layer {number}: {name}" for name in changed] or [f"layer {number}: order of its files"]
    return found


def entries(layer: packed.Blob) -> dict[str, tuple[object, ...]]:
    """Every file of a layer: mode, owner, time, link, and the hash of what it holds."""
    found: dict[str, tuple[object, ...]] = {}
    with layer.tar() as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            content = member.linkname
            if isinstance(file, BufferedReader):
                content = hashlib.file_digest(file, "sha256").hexdigest()
            found[member.name] = (member.type, member.mode, member.uid, member.gid, member.mtime, content)
    return found


def check(targets: Sequence[str], report: Report = print) -> None:
    """Builds every target twice from nothing. Raises `TestbedError` that names what differs."""
    stores = [Store(cache_root() / f"check-{n}", Path(tempfile.mkdtemp(prefix="graphpod-run-"))) for n in (1, 2)]
    try:
        for target in targets:
            began = time.monotonic()
            one, other = (images.build(target, report, store=store) for store in stores)
            hashes = [archive_hash(one), archive_hash(other)]
            if hashes[0] != hashes[1]:
                names = differing(packed.read(one)[0], packed.read(other)[0])
                raise TestbedError(f"image {target}: two builds differ in {len(names)} places: {'; '.join(names[:20])}")
            report(f"image {target}: the same bytes twice, sha256 {hashes[0]}, {time.monotonic() - began:.0f} s")
    finally:
        for store in stores:
            store.drop_layers()
            if store.root.exists():  # not that of the second when the first build failed
                shutil.rmtree(store.root)


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 the same, 1 a `TestbedError` (printed), 2 wrong usage."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if not argv or set(argv) - images.IMAGES.keys():
        print(f"usage: python3 -m testbed.images.reproducible TARGET …, of {', '.join(images.IMAGES)}", file=sys.stderr)
        return 2
    try:
        check(argv)
    except TestbedError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
