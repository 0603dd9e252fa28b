"""The image for GPUs, built and looked into where none is: `python3 -m testbed.images.cuda_image [--kernels PLACE]`.

A store of its own, removed at the end, since the layers take three times the image; what stays is the finished layout.
"""

import argparse
import re
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed import base_image
from testbed.command import run
from testbed.errors import TestbedError
from testbed.images import build as images
from testbed.images import packed
from testbed.images.store import Report, Store
from testbed.paths import cache_root

FLASHINFER = "0.6.13"
CLOSURE = Path(__file__).with_name("cuda_closure.py")
CLOSURE_LIMIT = 500.0  # s
# A container's view: the root read-only, /tmp alone writable, no network, an ordinary user.
INSIDE = """
mount --rbind "$1" "$2"; mount -o remount,bind,ro "$2"
mount -t tmpfs tmpfs "$2/tmp"; mount --bind /dev "$2/dev"; mount -t proc proc "$2/proc"
chmod 1777 "$2/tmp"; cat > "$2/tmp/closure.py"
exec chroot --userspec=65532:65532 "$2" env -i "${@:3}" python3 /tmp/closure.py
"""


@contextmanager
def unpacked(place: Path | None, report: Report) -> Iterator[Path | None]:
    """The folder `cached_ops` for our flashinfer, in a folder or in a .tgz laid out as flashinfer's own cache."""
    if place is None or not place.exists():
        why = f"{place} is not there" if place else "not given"
        report(f"flashinfer's kernels: {why}; the image is built without them")
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        if place.is_file():
            with tarfile.open(place) as tar:
                tar.extractall(folder, filter="data")
            place = Path(folder)
        found = sorted(place.glob(f"**/{FLASHINFER}/*/cached_ops")) or [place] * (place.name == "cached_ops")
        if not found:
            raise TestbedError(f"{place} holds no {FLASHINFER}/ARCHITECTURE/cached_ops of flashinfer {FLASHINFER}")
        theirs, ours = needed_glibc(found[0]), glibc()
        if theirs > ours:
            report(
                f"flashinfer's kernels: they need glibc 2.{theirs}, Debian 12 has 2.{ours} and would not load them:"
                " the image is built without them; build them on Debian 12"
            )
            yield None
        else:
            yield found[0]


def needed_glibc(folder: Path) -> int:
    """N of the newest GLIBC_2.N that a library in `folder` asks for."""
    asked = (n for file in folder.rglob("*.so") for n in re.findall(rb"GLIBC_2\.(\d+)\0", file.read_bytes()))
    return max(map(int, asked), default=0)


def glibc() -> int:
    """N of the base image's glibc 2.N."""
    return int(base_image.pins(base_image.LOCK.read_text())["libc6"].partition(".")[2].partition("-")[0])


def look_inside(store: Store, folder: Path, report: Report) -> None:
    """Runs `cuda_closure` in a container of the image. Raises `TestbedError` with what it printed."""
    image = packed.read(folder)[0]
    environment = image.settings()["config"]["Env"]
    container = store.buildah("from", "--pull-never", image.name).strip()
    try:
        root = store.buildah("mount", container).strip()
        with tempfile.TemporaryDirectory() as target:
            enter = ["unshare", "--mount", "--net", "--propagation", "private", "bash", "-euc", INSIDE, "inside"]
            said = run([*enter, root, target, *environment], input=CLOSURE.read_text(), timeout=CLOSURE_LIMIT)
        for line in said.splitlines():
            report(f"  {line}")
    finally:
        store.buildah("rm", container)


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 built and looked into, 1 a `TestbedError` (printed), 2 wrong usage."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(prog="python3 -m testbed.images.cuda_image", description=__doc__)
    parser.add_argument("--kernels", type=Path, help="flashinfer's kernels built ahead of time: a folder or a .tgz")
    args = parser.parse_args(argv)
    began = time.monotonic()
    store = Store(cache_root() / "cuda", Path("/run/graphpod/buildah-cuda"))
    try:
        with unpacked(args.kernels, print) as kernels:
            folder = images.build("runtime-cuda", kernels=kernels, store=store)
        if store.has(images.IMAGES["runtime-cuda"].tag):
            print("in a container of it, read-only, without a network or a GPU:")
            look_inside(store, folder, print)
        else:
            print("unchanged since it was looked into: its layers are gone, the finished image is there")
        print(f"{folder}\nruntime-cuda: {time.monotonic() - began:.0f} s")
    except TestbedError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    store.drop_layers()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
