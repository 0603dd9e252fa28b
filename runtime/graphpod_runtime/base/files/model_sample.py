"""A sample of a model's files, by which copies of a folder differ: machines of one engine may have a copy each."""

import hashlib
from contextlib import suppress
from pathlib import Path

SAMPLES, SAMPLE_BYTES = 4, 4096
"""Of each file: all of a model would be read for minutes, and buckets that are mounted answer each read late. Other
training changes nearly all bytes of the weights."""


def sample_of(folder: Path) -> str:
    """A hash of its description and of parts of its weights, with the names and sizes of these files. What cannot be
    read counts as empty: whoever loads it says so."""
    found = hashlib.sha256()
    for file in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        found.update(f"{file.name}\0".encode())
        with suppress(OSError):
            if file.is_file():
                _add(found, file, file.stat().st_size)
    return found.hexdigest()


def _add(found: "hashlib._Hash", file: Path, size: int) -> None:
    found.update(f"{size}\0".encode())
    with file.open("rb") as opened:
        for sample in range(SAMPLES):
            opened.seek(sample * max(0, size - SAMPLE_BYTES) // (SAMPLES - 1))
            found.update(opened.read(SAMPLE_BYTES))
