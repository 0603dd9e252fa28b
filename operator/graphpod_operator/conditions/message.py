"""The sentence of a condition: what happened and the next step, within the API's bounds. Pure."""

from __future__ import annotations

import re

from graphpod_operator.api.status import MESSAGE_MAX
from graphpod_operator.conditions.reasons import Reason

_NAMED = re.compile(r"\b[a-z]+(?:\.[a-zA-Z]+)+")
"""Fields and annotations, as a text names them."""


_REVISION = re.compile(r"revision ([0-9a-f]+)")


def sentence(reason: Reason, what: str, name: str = "") -> str:
    """`what` and the next step, at most 256 characters; `what` is cut between two words, the next step never is.

    Whoever said `what` may have ended with the same step, which is not said twice. With the service's `name` a command
    in the next step is ready to be copied.
    """
    what = " ".join(what.split()).rstrip(".; ")
    todo = reason.row.todo.replace("NAME", name) if name else reason.row.todo
    if (revision := _REVISION.search(what)) is not None:
        todo = todo.replace("REVISION", revision[1])
    what = what.removesuffix(todo).rstrip(".; ")
    before, _, last = what.rpartition("; ")
    if before and set(_NAMED.findall(last)).intersection(_NAMED.findall(todo.replace("spec.", ""))):
        what = before
    ending = f"; {todo}" if todo else ""
    return shortened(what, MESSAGE_MAX - len(ending)) + ending


def shortened(text: str, most: int) -> str:
    """`text` of at most so many characters, cut between two words where it is longer."""
    if len(text) <= most:
        return text
    return (text[: most - 1].rpartition(" ")[0] or text[: most - 1]) + "…"
