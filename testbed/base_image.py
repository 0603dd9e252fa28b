"""The base of all images: Debian 12 with Python, made by mmdebstrap from packages that locks/base.txt pins.

    python -m testbed.base_image            # locks/base.txt again, from what the mirror offers today

The same packages give the same bytes: mmdebstrap sorts, and sets every time to `EPOCH`. A mirror keeps only the newest
version of most packages, so a pinned one can be gone; then the newer one is taken, and the build says so.
"""

import hashlib
import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.command import run
from testbed.errors import TestbedError
from testbed.images.store import Report, Store, default_store
from testbed.sbom import dpkg_status

LOCK = Path(__file__).resolve().parent.parent / "locks" / "base.txt"
NAME = "graphpod.dev/base:bookworm"
EPOCH = 1795219200  # 2026-11-21T00:00:00Z: every file and every image bears this time
PACKAGES = ("python3", "ca-certificates", "usr-is-merged")  # the last one spares 50 MB of perl
PINS = "/etc/apt/preferences.d/graphpod"
COMMAND = (
    *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
    *("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", '--aptopt=APT::Install-Recommends "false"'),
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale")),
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",  # licences ask to be carried along
    # the host's own, and what apt wrote down
    f'--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/etc/hostname "$1{PINS}"',
    '--customize-hook=: > "$1"/etc/resolv.conf',
    "bookworm",
)
LIMIT = 900.0  # s
COMMIT_LIMIT = 600.0  # s


def key() -> str:
    """12 hexadecimal digits over what makes the base."""
    return hashlib.sha256(json.dumps([COMMAND, EPOCH, LOCK.read_text()]).encode()).hexdigest()[:12]


def provide(store: Store, report: Report) -> str:
    """The base in the store under the very name that FROM uses, made when its recipe is new; its digest."""
    versioned = f"{NAME}-{key()}"
    if not store.has(versioned):
        began = time.monotonic()
        report("image base: making Debian 12 with python3 by mmdebstrap …")
        rootfs = store.images / "base.tar"
        make(rootfs, pins(LOCK.read_text()))
        if drift := differences(pins(LOCK.read_text()), installed(rootfs)):
            report(f"image base: not as in locks/base.txt, since the Debian mirror has moved on: {'; '.join(drift)}")
        container = store.buildah("from", "--pull-never", "scratch").strip()
        try:
            path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            store.buildah("add", "--quiet", container, rootfs, "/")
            store.buildah("config", "--env", path, container)
            commit = ("commit", "--quiet", "--identity-label=false", "--timestamp", str(EPOCH))
            store.buildah(*commit, container, versioned, timeout=COMMIT_LIMIT)
        finally:
            store.buildah("rm", container)
            rootfs.unlink()
        report(f"image base: made in {time.monotonic() - began:.0f} s")
    store.buildah("tag", versioned, NAME)
    return store.buildah("images", "--format", "{{.Digest}}", versioned).split()[0]


def make(rootfs: Path, versions: Mapping[str, str]) -> None:
    """Writes the root file system as a tar; `versions` of packages are taken where the mirror still has them."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    with tempfile.NamedTemporaryFile("w", suffix=".preferences") as file:
        file.write(preferences(versions))
        file.flush()
        pinned = (f'--setup-hook=install -D -m 644 {file.name} "$1{PINS}"',)
        command: list[str | Path] = [COMMAND[0], *pinned, *COMMAND[1:], rootfs]
        run(command, timeout=LIMIT, env=environment, remedy="can this machine reach its Debian mirror?")


def pins(lock: str) -> dict[str, str]:
    """Version by package of a lock's lines `name=version`; comments start with #."""
    lines = [line for line in lock.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def preferences(versions: Mapping[str, str]) -> str:
    """apt's words for these pins; above 1000 it also goes back to an older version."""
    return "\n".join(
        f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n" for name, version in sorted(versions.items())
    )


def installed(rootfs: Path) -> dict[str, str]:
    """Version by package, from dpkg's own record in a root file system's tar."""
    with tarfile.open(rootfs) as tar:
        file = tar.extractfile("./var/lib/dpkg/status")
        if file is None:
            raise TestbedError(f"{rootfs} has no dpkg status: mmdebstrap did not end well")
        return {fields["Package"]: fields["Version"] for fields in dpkg_status(file.read().decode())}


def differences(wanted: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """`name wanted → there` for each package that is not as it was pinned."""
    names = sorted(wanted.keys() | there.keys())
    return [
        f"{name} {wanted.get(name, 'nothing')} → {there.get(name, 'nothing')}"
        for name in names
        if wanted.get(name) != there.get(name)
    ]


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 written, 1 a `TestbedError` (printed), 2 wrong usage."""
    if argv:
        print("usage: python -m testbed.base_image", file=sys.stderr)
        return 2
    try:
        with default_store().locked(print):
            rootfs = default_store().images / "base.tar"
            make(rootfs, {})
            there = installed(rootfs)
            rootfs.unlink()
    except TestbedError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    head = "# Debian packages of the base image; `python -m testbed.base_image` writes this file."
    LOCK.write_text("\n".join([head, *(f"{name}={there[name]}" for name in sorted(there)), ""]))
    print(f"{LOCK}: {len(there)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
