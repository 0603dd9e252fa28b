"""The sandbox image, written without any image tool: one static program in one layer."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from testbed.command import run
from testbed.images.packed import architecture
from testbed.paths import PACKAGE, cache_root

IMAGE = "graphpod.dev/pause:1"


def archive() -> Path:
    """The image as a docker archive in the cache, built on first use."""
    source = PACKAGE / "pause.c"
    key = hashlib.sha256(source.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]
    place = cache_root() / f"pause-{key}.tar"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        program, draft = place.with_suffix(".program"), place.with_suffix(".draft")
        run(["gcc", "-static", "-Os", "-s", "-o", program, source])
        draft.write_bytes(docker_archive(program.read_bytes(), architecture(), IMAGE))
        program.unlink()
        draft.rename(place)
    return place


def docker_archive(program: bytes, arch: str, name: str) -> bytes:
    """Image `name` that runs `program` as /pause, in the format of `docker save`. Same bytes in, same bytes out."""
    layer = _tar({"pause": program}, 0o755)
    config = json.dumps(
        {
            "architecture": arch,
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "User": "65532"},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
            "history": [],
        }
    ).encode()
    file = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    return _tar({file: config, "layer.tar": layer, "manifest.json": manifest}, 0o644)


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)  # modification time 0
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()
