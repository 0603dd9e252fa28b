"""An image that differs from another in its environment only: how a test reaches the engine's fault hooks."""

import hashlib
import io
import json
import tarfile
from pathlib import Path


def with_environment(archive: Path, out: Path, tag: str, **environment: str) -> Path:
    """Write `out`, the docker-archive `archive` under another tag and with `environment` in its configuration."""
    with tarfile.open(archive) as source, tarfile.open(out, "w") as target:
        (manifest,) = json.loads(_content(source, "manifest.json"))
        config = json.loads(_content(source, manifest["Config"]))
        config["config"]["Env"] = [*config["config"].get("Env", []), *(f"{k}={v}" for k, v in environment.items())]
        changed = json.dumps(config).encode()
        name = f"{hashlib.sha256(changed).hexdigest()}.json"
        for member in source.getmembers():
            if member.name in manifest["Layers"]:
                target.addfile(member, source.extractfile(member) if member.isreg() else None)
            elif member.islnk() or member.issym():
                target.addfile(member)
        _add(target, name, changed)
        manifest |= {"Config": name, "RepoTags": [tag]}
        _add(target, "manifest.json", json.dumps([manifest]).encode())
    return out


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, f"{name} is no file in {archive.name}"
    return file.read()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
