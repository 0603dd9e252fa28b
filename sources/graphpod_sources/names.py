"""Names that a source gives to files, and which of them may become paths below the model's folder."""

import re

from graphpod_sources.problem import Problem, Reason

LONGEST, DEEPEST = 512, 8
RESERVED = re.compile(r"\.graphpod|\.partial", re.IGNORECASE)
"""How the names of our own files begin."""


def safe(path: str, where: str) -> str:
    """`path` itself, when it stays below the folder it is put into. Raises `Problem` (BadArchive) that names it.

    Refused: absolute paths, `..`, empty parts, backslashes, control characters, our own files' names, and paths that
    are too long or too deep.
    """
    parts = path.split("/")
    if path.startswith("/"):
        wrong = "is absolute"
    elif ".." in parts:
        wrong = "leads out of the folder"
    elif not path or "" in parts or "." in parts:
        wrong = "has an empty part"
    elif "\\" in path or not path.isprintable():
        wrong = "has a backslash or a character that cannot be printed"
    elif len(path.encode("utf-8", "replace")) > LONGEST or len(parts) > DEEPEST or max(map(len, parts)) > 200:
        wrong = f"is longer than {LONGEST} bytes or deeper than {DEEPEST} folders"
    elif any(RESERVED.match(part) for part in parts):
        wrong = "is a name that graphpod-fetch keeps for itself"
    else:
        return path
    raise Problem(Reason.BadArchive, f"{where}: the file name {shown(path)} {wrong}")


def whole(value: object) -> int:
    """A number of a foreign document that counts something. ValueError for anything else, also for 1e999."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{shown(repr(value))} is no whole number")
    return value


def shown(text: str, most: int = 120) -> str:
    """Text from outside, for a message: quoted, escaped and bounded."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
