"""The archive that krew installs: the same bytes on every machine, so that the manifest can name their hash.

`python -m plugin.archive FILE` writes it.
"""

import hashlib
import io
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
FILES = {"kubectl-graphpod": HERE / "kubectl-graphpod", "LICENSE": HERE.parent / "LICENSE"}
MODES = {"kubectl-graphpod": 0o755, "LICENSE": 0o644}


def archive() -> bytes:
    """A zip file: stored, not compressed, because zlib's versions differ; without times."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        for name, source in FILES.items():
            entry = zipfile.ZipInfo(name)
            entry.create_system = 3  # Unix: the mode below counts
            entry.external_attr = (0o100000 | MODES[name]) << 16
            file.writestr(entry, source.read_bytes())
    return out.getvalue()


def sha256() -> str:
    """What the manifest says of it."""
    return hashlib.sha256(archive()).hexdigest()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(archive())
    print(f"{target}: sha256 {sha256()}")
