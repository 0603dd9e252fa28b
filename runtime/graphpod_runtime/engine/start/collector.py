"""Python's collector of cycles in a start.

Imports make a million objects that live as long as the process. Each full collection walks all of them: together a
tenth of the time that torch and its compiler take to import.
"""

import gc
from collections.abc import Container

from graphpod_runtime.wire.report import StartStage


class PausedCollector:
    """Nothing is collected until the weights are loaded; what is there then is never walked again. Later stages make
    cycles that hold memory of a device, and are collected as ever."""

    def __init__(self) -> None:
        gc.disable()
        self._paused = True

    def note(self, stages: Container[StartStage]) -> None:
        """A start has `stages` behind it."""
        if StartStage.Load in stages:
            self.resume()

    def resume(self) -> None:
        """The pause ends, if it has not: a capture may have one of its own."""
        if self._paused:
            self._paused = False
            gc.freeze()
            gc.enable()
