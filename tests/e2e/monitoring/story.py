"""What a user does with the chart, an example and PromQL, in its order, and what each panel showed."""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from monitoring.boards import BOARDS
from monitoring.boards.asking import Span, answer

RESULTS = "GRAPHPOD_FILLED"
"""Environment variable: the file for what was seen."""


@dataclass(frozen=True)
class Step:
    """What a user runs, what it printed, and its seconds."""

    command: str
    output: str
    seconds: float


@dataclass(frozen=True)
class Shown:
    """Series of each query of a panel, and what its description says for the case that there are none."""

    board: str
    panel: str
    series: list[int]
    why_empty: str

    @property
    def filled(self) -> bool:
        return all(self.series)


@dataclass
class Story:
    """Everything in its order. `quiet` is every panel before any request, `panels` and `marks` are after everything.
    `moments` are when the load changed: no metric knows that.
    """

    steps: list[Step] = field(default_factory=list)
    quiet: list[Shown] = field(default_factory=list)
    panels: list[Shown] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    moments: list[tuple[float, str]] = field(default_factory=list)

    def moment(self, what: str) -> None:
        """From now on the load is this."""
        self.moments.append((time.time(), what))

    def step(self, command: str, work: Callable[[], object]) -> str:
        """What it printed."""
        began = time.monotonic()
        said = str(work() or "").strip()
        self.steps.append(Step(command, said, round(time.monotonic() - began, 1)))
        print(f"\n$ {command}\n{said}\n{self.steps[-1].seconds} s", flush=True)
        self.write()
        return said

    def write(self) -> None:
        if path := os.environ.get(RESULTS):
            queries = [count for one in self.panels for count in one.series]
            found = {
                "date": time.strftime("%Y-%m-%d"),
                "total": len(self.panels),
                "filled": sum(one.filled for one in self.panels),
                "queries": len(queries),
                "nonEmptyQueries": sum(count > 0 for count in queries),
                "emptyBeforeTraffic": sum(not one.filled for one in self.quiet),
                "steps": [asdict(one) for one in self.steps],
                "panels": [asdict(one) for one in self.panels],
                "marks": [what for _, what in self.marks],
                "emptyPanelsBeforeTraffic": [asdict(one) for one in self.quiet if not one.filled],
            }
            Path(path).write_text(json.dumps(found, indent=2) + "\n")


def shown(prometheus: str, span: Span) -> Iterator[Shown]:
    """Every panel of every board."""
    for board in BOARDS:
        for panel in board.panels():
            series = [len(answer(prometheus, board, panel, query, span)) for query in panel.queries]
            yield Shown(board.name, panel.title, series, "" if all(series) else panel.quiet)
