"""Large layers of images, imported and unpacked once a machine, for every node that starts after that.

To import our images takes a node 38 processor seconds, nearly all of it for libraries and weights that no change of
code touches. `keep` has a containerd of its own import those layers, and leaves what it wrote under the folder of the
testbeds. A node's containerd begins with them (`lay`): its database is a copy, contents are hard links, an unpacked
layer is a link to the folder kept here. Nothing writes into an unpacked layer: containers write above it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from subprocess import STDOUT, Popen

from testbed.command import TIED, run
from testbed.errors import TestbedError
from testbed.host import kernel, record
from testbed.images import packed
from testbed.level import Level
from testbed.nodes.node_images import NodeImages
from testbed.paths import state_root
from testbed.process import identify, tail, wait_until

LARGE = 16 << 20  # bytes; a layer below that is imported in a moment
NAME = "graphpod.dev/kept-layers"
CONTENT = Path("io.containerd.content.v1.content", "blobs", "sha256")
DATABASE = Path("io.containerd.metadata.v1.bolt", "meta.db")
OVERLAY = Path("io.containerd.snapshotter.v1.overlayfs")
LIMIT = 60.0  # s, for containerd to answer
OTHER = 600.0  # s, for another that keeps layers


def keep(layouts: Iterable[Path], report: Callable[[str], None] = print) -> Path | None:
    """Keeps the large layers of these images, and those alone; where they are. Does nothing when they are there. Needs
    root.
    """
    kernel.check_root()
    with record.locked("layers.lock", patience=OTHER):
        place = _root() / "draft"
        shutil.rmtree(place, ignore_errors=True)  # of one that was killed
        place.mkdir(parents=True)
        try:
            whole = (image for layout in layouts for image in packed.read(layout))
            images = [short for image in whole if (short := shortened(image, place))]
            version = run(["containerd", "--version"])
            key = hashlib.sha256("\n".join([version, *sorted(image.digest for image in images)]).encode()).hexdigest()
            kept = _root() / f"kept-{key[:16]}"
            if not images:
                return None
            if kept.exists():
                kept.touch()  # the last
                return kept
            report(f"layers of {len(images)} images: importing what nodes begin with …")
            _import(images, place)
            (place / "root").rename(kept)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if all(testbed.level is not Level.NODE for testbed in record.load_all()):
            for old in set(_root().glob("kept-*")) - {kept}:
                shutil.rmtree(old)
        return kept


def lay(root: Path) -> None:
    """Puts what was kept last into the folder of a containerd that has never run. Where nothing is kept, nothing."""
    there = sorted(_root().glob("kept-*"), key=lambda kept: kept.stat().st_mtime)
    if not there:
        return
    kept = there[-1]
    for file in (DATABASE, OVERLAY / "metadata.db"):
        (root / file).parent.mkdir(parents=True, mode=0o700)
        shutil.copyfile(kept / file, root / file)
    (root / CONTENT).mkdir(parents=True)
    for blob in (kept / CONTENT).iterdir():
        os.link(blob, root / CONTENT / blob.name)
    snapshots = root / OVERLAY / "snapshots"
    snapshots.mkdir(mode=0o700)
    for layer in (kept / OVERLAY / "snapshots").iterdir():
        (snapshots / layer.name).symlink_to(layer)


def shortened(image: packed.Packed, folder: Path) -> packed.Packed | None:
    """The image up to its last large layer, under a name of its own; its configuration lies in `folder`. None where no
    layer is large.
    """
    count = max((n for n, layer in enumerate(image.layers, 1) if layer.size >= LARGE), default=0)
    if not count:
        return None
    settings, manifest = image.settings(), json.loads(image.manifest)
    unpacked = {"type": "layers", "diff_ids": settings["rootfs"]["diff_ids"][:count]}
    text = json.dumps({**{k: settings[k] for k in ("architecture", "os")}, "rootfs": unpacked}, sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()
    place = folder / f"{digest}.json"
    place.write_bytes(text)
    described = manifest["config"] | {"digest": f"sha256:{digest}", "size": len(text)}
    short = {k: manifest[k] for k in ("schemaVersion", "mediaType") if k in manifest}
    short |= {"config": described, "layers": manifest["layers"][:count]}
    return replace(
        image,
        name=f"{NAME}:{digest[:12]}",
        manifest=json.dumps(short, sort_keys=True).encode(),
        config=packed.Blob(f"sha256:{digest}", len(text), place),
        layers=image.layers[:count],
    )


def _import(images: list[packed.Packed], place: Path) -> None:
    """By a containerd whose root is `root` in `place`, and in a mount namespace of its own."""
    (place / "containerd.toml").write_text(
        f"""\
version = 2
root = "{place}/root"
state = "{place}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]

[grpc]
  address = "{place}/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "{place}/opt"
"""
    )
    log, store = place / "containerd.log", NodeImages(place / "containerd.sock")
    argv: list[str | Path] = [*TIED, "unshare", "--mount", "containerd", "--config", place / "containerd.toml"]
    with log.open("w") as out, Popen(argv, stdout=out, stderr=STDOUT) as containerd:
        try:
            if (process := identify(containerd.pid)) is not None:
                wait_until("containerd", store.answers, process, log, LIMIT)
                for image in images:
                    store.send([image])
        finally:
            containerd.terminate()  # an error would wait for its end
    if process is None or containerd.returncode != 0:
        raise TestbedError(f"containerd ended with status {containerd.returncode}\n{tail(log)}")


def _root() -> Path:
    return state_root() / "layers"
