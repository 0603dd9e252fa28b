"""How fast the claim takes bytes: next to the rate of a download it says which of both was the limit."""

import os
from pathlib import Path
from time import monotonic

PROBE = 64 << 20  # bytes
WORTH = 1 << 30
"""Bytes of a download from which on a probe of the disk is worth its time."""
BLOCK = 4 << 20


def disk_rate(folder: Path) -> float:
    """Bytes a second that a new file in `folder` takes, written to disk. The file is gone afterwards."""
    block, path = os.urandom(BLOCK), folder / ".graphpod-probe"
    began = monotonic()
    try:
        with path.open("wb") as file:
            for _ in range(PROBE // BLOCK):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        return PROBE / max(monotonic() - began, 1e-6)
    finally:
        path.unlink(missing_ok=True)
