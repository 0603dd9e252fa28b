"""What was tried and how often: a line as it happens, a table at the end, and rows in a file that keeps the others."""

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

FIRST = 2000
"""Characters of a failure that are said at once."""


class NotTried(Exception):
    """What was to befall the run never came, so that it counts for nothing."""


@dataclass
class Count:
    """One fault of one scenario, as one session tried it. `writes` is the greatest number in a run that passed,
    `allowed` what that run was allowed; `commit` is what was tried, `date` when (UTC).
    """

    fault: str
    scenario: str
    runs: int = 0
    passed: int = 0
    writes: int = 0
    allowed: int = 0
    commit: str = ""
    date: str = ""


COLUMNS = tuple(one.name for one in fields(Count))


@dataclass
class Tally:
    """Counts by (fault, scenario), in the order of their first run. With a `file` each is a row of it at once."""

    file: Path | None = None
    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def ran(self, fault: str, scenario: str, writes: int, allowed: int, seconds: float, runs: int = 1) -> None:
        """So many runs that every oracle found in order."""
        count = self._tried(fault, scenario, runs)
        count.passed += runs
        if writes >= count.writes:
            count.writes, count.allowed = writes, allowed
        self._keep(count)
        self.say(f"{fault} × {scenario}: in order after {seconds:.1f} s, {writes} of at most {allowed} writes")

    @contextmanager
    def telling(self, fault: str, scenario: str, runs: int = 1) -> Iterator[None]:
        """What goes wrong is counted and said at once, however long the others still take."""
        try:
            yield
        except NotTried:
            raise
        except Exception as error:
            self._keep(self._tried(fault, scenario, runs))
            self.say(f"{fault} × {scenario}: FAILED: {type(error).__name__}: {str(error)[:FIRST]}")
            raise

    def say(self, line: str) -> None:
        """Progress, for whoever watches."""
        runs = sum(count.runs for count in self.counts.values())
        print(f"chaos {time.monotonic() - self.began:6.0f} s, run {runs:3}: {line}", flush=True)

    def table(self) -> str:
        rows = [COLUMNS, *(tuple(str(asdict(count)[name]) for name in COLUMNS) for count in self.counts.values())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)

    def _tried(self, fault: str, scenario: str, runs: int) -> Count:
        count = self.counts.setdefault((fault, scenario), Count(fault, scenario, commit=commit()))
        count.runs += runs
        count.date = datetime.now(UTC).date().isoformat()
        return count

    def _keep(self, count: Count) -> None:
        """This session's row takes the place of an earlier session's. Sessions beside each other take turns."""
        if self.file is None:
            return
        with self.file.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            rows = {(row["fault"], row["scenario"]): row for row in json.loads(file.read() or '{"rows": []}')["rows"]}
            rows[count.fault, count.scenario] = asdict(count)
            file.truncate(0)
            json.dump({"command": "make chaos", "rows": list(rows.values())}, file, indent=1)
            file.write("\n")


@cache
def commit() -> str:
    """Of the tree that is tried; with a mark when something in it is not committed."""
    argv = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(argv, cwd=Path(__file__).parent, check=True, capture_output=True, text=True).stdout.strip()


def asked_for(variable: str) -> Tally:
    """One whose rows go to the file that the environment variable names, if it does."""
    return Tally(Path(file) if (file := os.environ.get(variable)) else None)
