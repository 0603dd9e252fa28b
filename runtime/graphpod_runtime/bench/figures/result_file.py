"""What a benchmark found, as a file of JSON."""

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec


class Kept(Protocol):
    """A msgspec struct that names the format of its file."""

    @property
    def format(self) -> str: ...


K = TypeVar("K", bound=Kept)


class ResultFileInvalid(ValueError):
    """A file is not what the command writes; the message says where and why."""


def write(found: Kept, path: Path) -> None:
    """As JSON, indented. The file is whole at any time: an earlier one is replaced at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.tmp")
    half.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    half.replace(path)


def read(path: Path, kind: type[K], format: str, command: str) -> K:
    """What `command` wrote to `path` in this format; ResultFileInvalid when it wrote nothing there."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ResultFileInvalid(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ResultFileInvalid(f"{path}: not what `{command} --json` writes: {error}; give another file") from error
    if found.format != format:
        raise ResultFileInvalid(f"{path}: is {found.format!r}, this version reads {format!r}; run the benchmark again")
    return found
