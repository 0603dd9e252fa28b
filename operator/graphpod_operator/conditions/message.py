"""The sentence of a condition: what happened and the next step, within the API's bounds. Pure."""

from __future__ import annotations

import re

from graphpod_operator.api.names import OWNER_LABEL
from graphpod_operator.api.status import MESSAGE_MAX
from graphpod_operator.conditions.reasons import Reason

_NAMED = re.compile(r"\b[a-z]+(?:\.[a-zA-Z]+)+")
"""Fields and annotations, as a text writes them."""


_JOB = re.compile(r"\bJob ([a-z0-9][a-z0-9-]*)")
_REVISION = re.compile(r"revision ([0-9a-f]+)")
_NAME = re.compile(r"\bNAME\b")
SERVING = "earlier pods keep serving"
"""How a message begins what it says after the next step."""
LEAST_WHAT = 60
"""Characters of what happened that a long next step leaves."""
_POD = re.compile(r"^pod ([a-z0-9][a-z0-9.-]*)[: ]")
"""The pod that a diagnosis is about, or a reading of it."""


def sentence(reason: Reason, what: str, name: str = "", pod: str = "", namespace: str = "", after: str = "") -> str:
    """`what`, the next step and what holds `after` that, at most 256 characters; only `what` is cut, between two words.

    If `what` already ends with the same step, that step is not repeated. With the service's `name` and `namespace`
    and the `pod` a command in the next step is ready to copy; the pod's name may also stand at the beginning of `what`.
    A namespace whose name leaves too little room for `what` is left out.
    """
    what = " ".join(what.split()).rstrip(".; ")
    todo = reason.row.todo
    if reason.row.own_step and "; " in what:
        what, _, todo = what.rpartition("; ")
    pod = pod or pod_of(what)
    todo = step(todo, name, pod, what)
    if namespace and len(todo) + len(namespace) + len(after) > MESSAGE_MAX - LEAST_WHAT:
        todo = todo.replace(" -n NAMESPACE", "")
    todo = todo.replace("NAMESPACE", namespace) if namespace else todo
    what = what.removesuffix(todo).rstrip(".; ")
    before, _, last = what.rpartition("; ")
    if before and set(_named(last)).intersection(_named(todo)):
        what = before
    ending = "".join(f"; {part}" for part in (todo, after) if part)
    return shortened(what, MESSAGE_MAX - len(ending)) + ending


def step(todo: str, name: str, pod: str, what: str, namespace: str = "") -> str:
    """A next step of the table, with the service's name and namespace, the pod's name, and the Job and the revision
    that `what` names in it. Without a pod it is about all pods of the service.
    """
    if pod:
        todo = todo.replace("POD", pod)
    elif name:
        todo = todo.replace("POD", f"-l {OWNER_LABEL}={name}")
    if (revision := _REVISION.search(what)) is not None:
        todo = todo.replace("REVISION", revision[1])
    if (job := _JOB.search(what)) is not None:
        todo = todo.replace("JOB", job[1])
    todo = _NAME.sub(name, todo) if name else todo
    return todo.replace("NAMESPACE", namespace) if namespace else todo


def pod_of(message: str) -> str:
    """The pod that a condition's `message` is about; empty where it names none."""
    match = _POD.search(message)
    return "" if match is None else match[1]


def own_step(reason: Reason, message: str) -> str:
    """The step with which the words of what happened ended, in a condition's `message`; empty where there is none."""
    parts = [part for part in message.split("; ") if not part.startswith(SERVING)]
    return parts[-1] if reason.row.own_step and len(parts) > 1 else ""


def _named(text: str) -> list[str]:
    return _NAMED.findall(text.replace("spec.", ""))


def shortened(text: str, most: int) -> str:
    """`text` of at most so many characters, cut between two words where it is longer."""
    if len(text) <= most:
        return text
    return (text[: most - 1].rpartition(" ")[0] or text[: most - 1]) + "…"
