"""JSON in annotations and termination messages: others can write there whatever they like."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def read(text: bytes | str, kind: type[T]) -> T | None:
    """The value that `text` holds; None of a text that the operator and its pods did not write."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
