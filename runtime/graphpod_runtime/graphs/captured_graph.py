"""Captured graphs of one size: what a replay needs of them, and nothing of their capture."""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from graphpod_runtime.base.errors import ReplayFailed
from graphpod_runtime.graphs.break_arena import AttendInto, AttentionRows, BreakArena, put_result
from graphpod_runtime.graphs.breaks import Stop
from graphpod_runtime.graphs.capture_errors import CaptureSite
from graphpod_runtime.graphs.segments.segment import Calls


class CapturedGraph(Protocol):
    """A pass of one size."""

    site: CaptureSite

    @property
    def segments(self) -> int: ...

    def replay(self, count: int) -> None:
        """Runs the pass over `count` real rows."""


class FullGraph:
    """One segment. Padded rows run too, on the scratch page, so the real count makes no difference."""

    segments = 1

    def __init__(self, site: CaptureSite, calls: Calls) -> None:
        self.site, self._calls = site, calls

    def replay(self, count: int) -> None:
        for call in self._calls:
            call()


class BreakableGraph:
    """Segments with breaks between them. `capture_breakable` fills it."""

    def __init__(self, site: CaptureSite, attend: AttendInto, arena: BreakArena) -> None:
        self.site = site
        self.calls: list[Calls] = []
        """Of each segment."""
        self.stops: list[int | Stop] = []
        """What runs after each segment but the last: attention of a layer, or another break point."""
        self._attend, self._arena = attend, arena

    @property
    def segments(self) -> int:
        """Breaks + 1."""
        return len(self.calls)

    def replay(self, count: int) -> None:
        """ReplayFailed names the break whose code raised."""
        rows = self._arena.rows(self.site.size, count)
        if rows.tail.shape[0]:
            # Once: no segment and no break of this pass writes it.
            rows.tail.zero_()
        try:
            attend = self._attend(rows.q, rows.k, rows.v, rows.out)
        except Exception as error:
            raise ReplayFailed(f"{self.site}, before its first break: {type(error).__name__}: {error}") from error
        for index, stop in enumerate(self.stops):
            for call in self.calls[index]:
                call()
            try:
                if isinstance(stop, Stop):
                    stop.run(count)
                else:
                    self.attend(stop, rows, attend)
            except Exception as error:
                raise ReplayFailed(self.where(index, error)) from error
        for call in self.calls[-1]:
            call()

    def attend(self, layer: int, rows: AttentionRows, attend: Callable[[int], Tensor]) -> None:
        """The break of a layer."""
        put_result(attend(layer), rows.out)

    def where(self, index: int, error: BaseException) -> str:
        """What a break raised, and which."""
        stop = self.stops[index]
        which = str(stop) if isinstance(stop, Stop) else f"layer {stop}"
        return f"{self.site}, break after segment {index}, {which}: {type(error).__name__}: {error}"
