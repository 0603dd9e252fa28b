"""A function that is timed where it stands, in a process whose code does not know of it."""

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

Then = Callable[[Sequence[Any], Any, int, int], None]
"""Its arguments, its result, and when it began and ended: nanoseconds of `time.perf_counter_ns`."""


def timed(module: str, name: str, then: Then, *, optional: bool = False) -> None:
    """Calls `then` after each call of the function `name` of `module`, such as `Class.method`. AttributeError where
    there is none, unless it is `optional`: another commit's code may lack it."""
    owner: Any = importlib.import_module(module)
    *classes, last = name.split(".")
    try:
        for one in classes:
            owner = getattr(owner, one)
        own = getattr(owner, last)
    except AttributeError:
        if optional:
            return
        raise

    def marked(*given: Any, **named: Any) -> Any:
        began = time.perf_counter_ns()
        found = own(*given, **named)
        then(given, found, began, time.perf_counter_ns())
        return found

    setattr(owner, last, marked)
