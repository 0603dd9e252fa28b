"""The garbage collector of a test run. What was collected lives until the end, with torch and transformers: walking it
takes half a second each time, so it is set aside. A capture sets aside what is alive, too, and then gives everything
back, so it must not do either here; nor count what is set aside, which walks all of it.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

FREEZE, UNFREEZE, COUNT = gc.freeze, gc.unfreeze, gc.get_freeze_count


def set_aside() -> None:
    """Everything that is alive now, until the end of the run."""
    FREEZE()
    count, patch = COUNT(), pytest.MonkeyPatch()
    for name in ("freeze", "unfreeze"):
        patch.setattr(gc, name, lambda: None)
    patch.setattr(gc, "get_freeze_count", lambda: count)


@contextmanager
def as_in_an_engine() -> Iterator[None]:
    """Nothing is set aside but by the code under test."""
    UNFREEZE()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", FREEZE)
        patch.setattr(gc, "unfreeze", UNFREEZE)
        patch.setattr(gc, "get_freeze_count", COUNT)
        yield
    gc.collect()
    FREEZE()
