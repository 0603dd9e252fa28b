"""What was tried and how often: a line as it happens, a table at the end, and counts in a file."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

COLUMNS = ("fault", "scenario", "runs", "writes", "allowed")

FIRST = 2000
"""Characters of a failure that are said at once."""


@dataclass
class Count:
    """One fault of one scenario. `writes` is the greatest number in a run, `allowed` what that run was allowed."""

    fault: str
    scenario: str
    runs: int = 0
    writes: int = 0
    allowed: int = 0


@dataclass
class Tally:
    """Counts by (fault, scenario), in the order of their first run."""

    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def ran(self, fault: str, scenario: str, writes: int, allowed: int, seconds: float, runs: int = 1) -> None:
        """So many runs that every oracle found in order."""
        count = self.counts.setdefault((fault, scenario), Count(fault, scenario))
        count.runs += runs
        if writes >= count.writes:
            count.writes, count.allowed = writes, allowed
        self.say(f"{fault} × {scenario}: in order after {seconds:.1f} s, {writes} of at most {allowed} writes")

    @contextmanager
    def telling(self, run: str) -> Iterator[None]:
        """What goes wrong is said at once, however long the others still take."""
        try:
            yield
        except AssertionError as error:
            self.say(f"{run}: FAILED: {str(error)[:FIRST]}")
            raise

    def say(self, line: str) -> None:
        """Progress, for whoever watches."""
        runs = sum(count.runs for count in self.counts.values())
        print(f"chaos {time.monotonic() - self.began:6.0f} s, run {runs:3}: {line}", flush=True)

    def table(self) -> str:
        rows = [COLUMNS, *(tuple(str(asdict(count)[name]) for name in COLUMNS) for count in self.counts.values())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)

    def write(self, file: Path) -> None:
        """The counts, as JSON."""
        rows = [asdict(count) for count in self.counts.values()]
        file.write_text(
            json.dumps({"command": "make chaos", "runs": sum(row["runs"] for row in rows), "rows": rows}, indent=1)
        )
