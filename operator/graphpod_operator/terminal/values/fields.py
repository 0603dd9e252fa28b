"""Reading values that any user may have written: text at a path of an object, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

WORD_MAX = 512
"""Characters of one text that are printed."""


def mapping(value: Any, *path: str) -> Mapping[str, Any]:
    """The map at a path; empty where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def maps(value: Any, *path: str) -> Iterator[Mapping[str, Any]]:
    """The maps in the list at a path."""
    *where, last = path
    found = mapping(value, *where).get(last)
    return (one for one in found if isinstance(one, Mapping)) if isinstance(found, list) else iter(())


def text(value: Any, *path: str) -> str | None:
    """The text at a path, fit for a terminal; None where there is none."""
    *where, last = path
    found = mapping(value, *where).get(last)
    return printable(found) if isinstance(found, str) and found else None


def whole(value: Any, *path: str) -> int | None:
    """The whole number at a path, or None."""
    *where, last = path
    found = mapping(value, *where).get(last)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def printable(words: str) -> str:
    """Text in one line, without the control characters by which it could drive a terminal."""
    short = " ".join(words[: 2 * WORD_MAX].split())
    return "".join(one if one.isprintable() else "?" for one in short)[:WORD_MAX]
