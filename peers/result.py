"""What a run of the suites found, as JSON."""

import json
import os
import platform
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from graphpod_policy import __version__
from peers.refusals import Refusal, refusal, unused
from peers.run import Case

PASSED, FAILED, REFUSED = "passed", "failed", "refused"


@dataclass(frozen=True, slots=True)
class Result:
    """`sources`: name and version of each suite; `cases`: each test's outcome after the list of refusals."""

    provenance: dict[str, str]
    sources: dict[str, str]
    cases: tuple[Case, ...]

    def as_json(self) -> str:
        """Sorted, a case a line."""
        rows = ",\n".join(f"  {json.dumps(asdict(case))}" for case in self.cases)
        head = json.dumps({"provenance": self.provenance, "sources": self.sources}, indent=1)[:-2]
        return f'{head},\n "cases": [\n{rows}\n ]\n}}\n'

    @classmethod
    def read(cls, file: Path) -> "Result":
        """What `as_json` wrote."""
        found = json.loads(file.read_text())
        return cls(found["provenance"], found["sources"], tuple(Case(**row) for row in found["cases"]))

    def counts(self, suite: str) -> Counter[str]:
        """Cases of a suite by outcome."""
        return Counter(case.outcome for case in self.cases if case.suite == suite)

    def failures(self) -> list[Case]:
        """Cases that neither pass nor stand in the list."""
        return [case for case in self.cases if case.outcome == FAILED]


def judged(case: Case, listed: tuple[Refusal, ...]) -> Case:
    """The case with its outcome. A test that skips itself passes nothing: it must stand in the list. One that passes
    must not stand there, unless it does so by chance.
    """
    row = refusal(case.suite, case.test, listed)
    if row is None:
        if case.outcome == PASSED:
            return case
        return replace(case, outcome=FAILED, why=case.why if case.outcome == FAILED else f"skips itself: {case.why}")
    if case.outcome == PASSED and not row.chance:
        return replace(case, outcome=FAILED, why=f"passes, and stands in the list of refusals: {row.reason}")
    return replace(case, outcome=REFUSED, why=row.reason)


def missing(suite: str, cases: list[Case], listed: tuple[Refusal, ...]) -> list[Case]:
    """A failure for each pattern of the list that names no test of the suite."""
    return [
        Case(suite, pattern, FAILED, "names no test in the list of refusals", 0.0)
        for pattern in unused(suite, (case.test for case in cases), listed)
    ]


def provenance(command: str, seconds: float) -> dict[str, str]:
    """Where a result came from."""
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "graphpod": __version__,
        "model": "SmolLM2-135M-Instruct, float32, on a CPU",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "took": f"{seconds / 60:.0f} min",
    }
