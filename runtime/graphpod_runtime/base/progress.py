"""How a long step reports its progress."""

from collections.abc import Callable

OnProgress = Callable[[], None]
"""Is called whenever a long step has made progress."""


def ignore_progress() -> None:
    """An OnProgress that does nothing."""
