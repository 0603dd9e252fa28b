"""The sentence of a condition: what happened and the next step, within the API's bounds. Pure."""

from __future__ import annotations

import re

from graphpod_operator.api.names import OWNER_LABEL
from graphpod_operator.api.status import MESSAGE_MAX
from graphpod_operator.conditions.reasons import Reason

_NAMED = re.compile(r"\b[a-z]+(?:\.[a-zA-Z]+)+")
"""Fields and annotations, as a text writes them."""


_REVISION = re.compile(r"revision ([0-9a-f]+)")
_POD = re.compile(r"^pod ([a-z0-9][a-z0-9.-]*)[: ]")
"""The pod that a diagnosis is about, or a reading of it."""


def sentence(reason: Reason, what: str, name: str = "", pod: str = "") -> str:
    """`what` and the next step, at most 256 characters; `what` is cut between two words, the next step never is.

    If `what` already ends with the same step, that step is not repeated. With the service's `name` and the `pod` a
    command in the next step is ready to copy; the pod's name may also stand at the beginning of `what`.
    """
    what = " ".join(what.split()).rstrip(".; ")
    todo = reason.row.todo
    if not pod and (match := _POD.search(what)) is not None:
        pod = match[1]
    if pod:
        todo = todo.replace("POD", pod)
    elif name:
        todo = todo.replace("POD", f"-l {OWNER_LABEL}={name}")
    todo = todo.replace("NAME", name) if name else todo
    if (revision := _REVISION.search(what)) is not None:
        todo = todo.replace("REVISION", revision[1])
    what = what.removesuffix(todo).rstrip(".; ")
    before, _, last = what.rpartition("; ")
    if before and set(_named(last)).intersection(_named(todo)):
        what = before
    ending = f"; {todo}" if todo else ""
    return shortened(what, MESSAGE_MAX - len(ending)) + ending


def _named(text: str) -> list[str]:
    return _NAMED.findall(text.replace("spec.", ""))


def shortened(text: str, most: int) -> str:
    """`text` of at most so many characters, cut between two words where it is longer."""
    if len(text) <= most:
        return text
    return (text[: most - 1].rpartition(" ")[0] or text[: most - 1]) + "…"
