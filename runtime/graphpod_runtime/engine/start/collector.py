"""Python's collector of cycles in a start.

Imports make a million objects that live as long as the process. Each full collection walks all of them: together a
tenth of the time that torch and its compiler take to import.
"""

import gc
from collections.abc import Container

from graphpod_runtime.wire.report import StartStage


class PausedCollector:
    """Nothing is collected until the weights are loaded; what is alive then is never walked again. Later stages make
    cycles that hold memory of a device, and are collected as ever."""

    def __init__(self) -> None:
        gc.disable()
        self._paused = self._importing = True

    def note(self, stages: Container[StartStage]) -> None:
        """A start has `stages` behind it."""
        if StartStage.Load in stages:
            self.resume()
        elif self._importing and StartStage.Import in stages:
            # The cycles that imports leave stay, too: 7 MB of this process's memory at most, and none of a device
            # (torch 2.13 with its compiler, 2026-11-27). To find them takes as long as one collection of everything.
            self._importing = False
            gc.freeze()

    def resume(self) -> None:
        """The pause ends, if it has not: a capture may have one of its own."""
        if self._paused:
            self._paused = False
            # A cycle of the load may hold weights, which would never be freed once it is set aside.
            gc.collect()
            gc.freeze()
            gc.enable()
