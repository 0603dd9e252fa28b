"""Images from the Dockerfile: `python -m testbed.images build operator runtime`.

An image is a docker-archive in the cache whose name holds a hash of everything that went into it, so a second build
with nothing changed is a look at a file. buildah keeps its layers in a store of our own, beside the archives.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.command import run
from testbed.errors import TestbedError
from testbed.paths import cache_root
from testbed.process import tail

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ("Dockerfile", ".dockerignore")
BASE = "graphpod.dev/base:bookworm"
BASE_PACKAGES = ("python3", "ca-certificates", "usr-is-merged")  # the last one spares 50 MB of perl
EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
BASE_COMMAND = (
    *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}"),
    *("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", '--aptopt=APT::Install-Recommends "false"'),
    *(f"--dpkgopt=path-exclude={path}" for path in EXCLUDED),
    '--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*',
    "bookworm",
)
BASE_LIMIT = 900.0  # s
BUILD_LIMIT = 3600.0  # s; a slow line to the package index
PUSH_LIMIT = 600.0  # s
CERTIFICATES = Path("/etc/ssl/certs")
Report = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    """One target of the Dockerfile. `goal` is its unpacked size in bytes, a goal and not a gate."""

    target: str
    tag: str
    sources: tuple[str, ...]
    goal: int | None = None


IMAGES = {
    image.target: image
    for image in (
        Image(
            "operator",
            "graphpod.dev/operator:0.1.0",
            ("locks/operator.txt", "policy/graphpod_policy", "operator/graphpod_operator"),
            300_000_000,
        ),
        Image(
            "runtime",
            "graphpod.dev/runtime:0.1.0-cpu",
            ("locks/runtime-cpu.txt", "policy/graphpod_policy", "runtime/graphpod_runtime"),
            1_500_000_000,
        ),
        Image("demo-weights", "graphpod.dev/demo-weights:smollm2-135m", ()),
        Image("stubs", "graphpod.dev/stubs:0.1.0", ("stubs",)),
    )
}


def build(target: str, report: Report = print, *, weights: Path | None = None) -> Path:
    """Path of the image's docker-archive, built when what it is made of has changed.

    `weights` is the model folder that `demo-weights` carries, under its own name. Raises `TestbedError`.
    """
    if target not in IMAGES:
        raise TestbedError(f"no image is called {target!r}; there are: {', '.join(IMAGES)}")
    if (weights is not None) != (target == "demo-weights"):
        raise TestbedError("the image demo-weights, and no other, is built with weights=<folder of the model>")
    image, began = IMAGES[target], time.monotonic()
    archive = _archive(image, ROOT, weights)
    if archive.exists():
        report(f"image {target}: unchanged, {_size_line(image, archive)}")
        return archive
    with _lock(report), tempfile.TemporaryDirectory(prefix="graphpod-image-") as folder:
        context = Path(folder)
        _copy(image, context)  # what is edited meanwhile must not get into an archive named after something else
        archive = _archive(image, context, weights)
        if not archive.exists():
            _base(report)
            report(f"image {target}: building …")
            _build(image, context, archive, weights)
            for old in _folder().glob(f"{target}-*.tar"):
                if old != archive and old.stem.rpartition("-")[0] == target:
                    old.unlink()
    report(f"image {target}: built in {time.monotonic() - began:.0f} s, {_size_line(image, archive)}")
    return archive


def content_key(image: Image, root: Path, weights: Path | None = None) -> str:
    """12 hexadecimal digits over the Dockerfile, the base's recipe, the sources under `root` and the weights."""
    digest = hashlib.sha256(json.dumps([image.tag, BASE_COMMAND]).encode())
    places = [root / name for name in (*RECIPE, *image.sources)]
    for place in [*places, *([weights] if weights else [])]:
        if not place.exists():
            raise TestbedError(f"{place} does not exist, and image {image.target} is made from it")
        for file in _files(place):
            with file.open("rb") as content:
                body = hashlib.file_digest(content, "sha256").hexdigest()
            digest.update(f"{file.relative_to(place.parent)}\0{body}\n".encode())
    return digest.hexdigest()[:12]


def unpacked_bytes(archive: Path) -> int:
    """Size of the image's layers before compression, as its archive holds them."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        if manifest is None:
            raise TestbedError(
                f"{archive} is no docker-archive (manifest.json is not a file): delete it and build again"
            )
        return sum(tar.getmember(layer).size for layer in json.load(manifest)[0]["Layers"])


def _archive(image: Image, root: Path, weights: Path | None) -> Path:
    return _folder() / f"{image.target}-{content_key(image, root, weights)}.tar"


def _copy(image: Image, context: Path) -> None:
    """The build's context: the recipe and this image's sources, with their times, so that layers are found again."""
    for name in (*RECIPE, *image.sources):
        source, to = ROOT / name, context / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, to)


def _size_line(image: Image, archive: Path) -> str:
    size = unpacked_bytes(archive)
    missed = f", above the goal of {image.goal / 1e6:.0f} MB" if image.goal and size > image.goal else ""
    return f"{size / 1e6:.0f} MB unpacked{missed}, {image.tag}"


def _files(place: Path) -> Iterable[Path]:
    if place.is_file():
        return [place]
    return sorted(f for f in place.rglob("*") if f.is_file() and "__pycache__" not in f.parts)


def _folder() -> Path:
    folder = cache_root() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _base(report: Report) -> None:
    """The base image in the store, under the very name that FROM uses, made by mmdebstrap when its recipe is new."""
    key = hashlib.sha256(json.dumps(BASE_COMMAND).encode()).hexdigest()[:12]
    versioned = f"{BASE}-{key}"
    if not _buildah("images", "--quiet", "--filter", f"reference={versioned}").strip():
        began = time.monotonic()
        report("image base: making Debian 12 with python3 by mmdebstrap …")
        rootfs = _folder() / "base.tar"
        run([*BASE_COMMAND, rootfs], timeout=BASE_LIMIT, remedy="can this machine reach its Debian mirror?")
        container = _buildah("from", "--pull-never", "scratch").strip()
        try:
            _buildah("add", "--quiet", container, str(rootfs), "/")
            _buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
            _buildah("commit", "--quiet", container, versioned, timeout=PUSH_LIMIT)
        finally:
            _buildah("rm", container)
            rootfs.unlink()
        report(f"image base: made in {time.monotonic() - began:.0f} s")
    _buildah("tag", versioned, BASE)


def _build(image: Image, context: Path, archive: Path, weights: Path | None) -> None:
    command = [
        *("build", "--layers", "--isolation", "chroot", "--pull-never", "--network", "host"),
        *("--file", str(context / "Dockerfile"), "--target", image.target, "--tag", image.tag),
    ]
    if CERTIFICATES.is_dir():  # a package index may be behind a certificate that only this machine knows
        command += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    wheels = Path(os.environ.get("TORCH_WHEELS") or ROOT.parent / "shared" / "wheels").resolve()
    if image.target == "runtime" and wheels.is_dir():
        command += ["--volume", f"{wheels}:/wheels:ro"]
    if weights:
        command += ["--build-context", f"weights={weights}", "--build-arg", f"MODEL={weights.name}"]
    log = _folder() / f"{image.target}.log"
    with log.open("w") as out:
        try:
            done = subprocess.run(
                [*_store(), *command, str(context)], stdout=out, stderr=subprocess.STDOUT, timeout=BUILD_LIMIT
            )
        except subprocess.TimeoutExpired as e:
            raise TestbedError(f"image {image.target}: not built within {BUILD_LIMIT:.0f} s\n{tail(log)}") from e
    if done.returncode != 0:
        raise TestbedError(f"image {image.target}: buildah failed with status {done.returncode}\n{tail(log)}")
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    _buildah("push", "--quiet", image.tag, f"docker-archive:{partial}:{image.tag}", timeout=PUSH_LIMIT)
    partial.rename(archive)


def _buildah(*args: str, timeout: float = 300.0) -> str:
    return run([*_store(), *args], timeout=timeout)


def _store() -> list[str]:
    """buildah on our own store: the machine's images are not touched, and the cache folder can simply be deleted."""
    place = ["buildah", "--root", str(cache_root() / "buildah"), "--runroot", "/run/graphpod/buildah"]
    return [*place, "--storage-driver", _driver(tuple(place))]


_drivers: dict[tuple[str, ...], str] = {}


def _driver(place: tuple[str, ...]) -> str:
    """overlay where the kernel and the cache's file system allow it, else vfs (slower, larger, works everywhere)."""
    if place not in _drivers:
        if os.geteuid() != 0:
            raise TestbedError("images are built as root: run the same command with sudo")
        try:
            run([*place, "--storage-driver", "overlay", "info"])
            _drivers[place] = "overlay"
        except TestbedError:
            run([*place, "--storage-driver", "vfs", "info"])
            _drivers[place] = "vfs"
    return _drivers[place]


@contextmanager
def _lock(report: Report) -> Iterator[None]:
    """One build at a time per cache; the lock goes with its process."""
    with (_folder() / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("images: another build is running, waiting for it …")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 built, 1 a `TestbedError` (printed), 2 wrong usage."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(prog="python -m testbed.images", description="The images of graphpod.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("build", help="build what has changed and print where it is")
    verb.add_argument("targets", nargs="+", choices=list(IMAGES), metavar="TARGET", help=", ".join(IMAGES))
    verb.add_argument("--weights", type=Path, help="folder of the model that demo-weights carries")
    args = parser.parse_args(argv)
    try:
        for target in args.targets:
            print(build(target, weights=args.weights if target == "demo-weights" else None))
    except TestbedError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
