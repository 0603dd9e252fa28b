"""Nothing is sent to a reader's cluster before they named it: by typing its context's name, or with CONFIRM=NAME."""

import sys
from typing import TextIO

from demo.current.kubeconfig import Context
from testbed.errors import TestbedError


def card(context: Context) -> str:
    """The cluster as its kubeconfig describes it."""
    rows = (
        ("context", context.name),
        ("server", context.server),
        ("user", context.user),
        ("from", context.kubeconfig),
    )
    return "\n".join(f"  {word:<8} {value}" for word, value in rows)


def confirm(
    context: Context, goal: str, deed: str, given: str | None, source: TextIO | None = None, out: TextIO | None = None
) -> None:
    """Returns when `context` was named, else raises `TestbedError`. `goal` is make's, `deed` says what will happen.

    `given` is what CONFIRM holds; without it a person at a terminal is asked.
    """
    source, out = source or sys.stdin, out or sys.stdout
    if given is None and not source.isatty():
        raise TestbedError(
            f"`make {goal} CLUSTER=current` is not confirmed for this cluster; nothing was sent to it:\n"
            f"{card(context)}\n"
            f"confirm it, in addition to what you gave: make {goal} CLUSTER=current CONFIRM={context.name}"
        )
    if given is None:
        print(f"{deed}\n{card(context)}\nType the context's name to go on: ", end="", file=out, flush=True)
        given, said = source.readline().strip(), "you typed"
    else:
        said = "CONFIRM is"
    if given != context.name:
        raise TestbedError(
            f"{said} {given!r}, but the current context is {context.name!r} ({context.server}); nothing was sent to it."
            f"\n`kubectl config use-context NAME` chooses another context, KUBECONFIG another file"
        )
