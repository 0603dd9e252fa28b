"""`make mutation`: python -m benchmarks.mutation [--table] [--drawn N --seed 14] [--only ID …] [--json FILE]

Exit code 0 when every mutant of the table is found and, of those drawn, 95 % but for the equivalents.
"""

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from benchmarks.mutation.draw import AREAS, drawn
from benchmarks.mutation.fitting import fitting
from benchmarks.mutation.mutant import ROOT, TABLE, Mutant, mutants
from benchmarks.mutation.trial import Run, Tree, Verdict, tried

RESULT = ROOT / "benchmarks/results/mutation.json"
EQUIVALENTS = TABLE.with_name("equivalents.toml")
GOAL = 0.95
"""Of drawn mutants, but for equivalents."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant, by which test, in how many seconds."""

    mutant: Mutant
    drawn: bool
    verdict: Verdict
    run: Run
    seconds: float


def main() -> int:
    """Tries the wanted mutants, prints a line for each, writes the report."""
    wanted = _arguments()
    known = {(row.file, row.original, row.replacement): row.equivalent for row in _equivalents()}
    work: list[tuple[Mutant, bool]] = []
    if wanted.table:
        work += [(row, False) for row in mutants()]
    if wanted.drawn:
        for row in drawn(wanted.seed, wanted.drawn, tuple(wanted.areas)):
            reason = known.get((row.file, row.original, row.replacement))
            work.append((replace(row, equivalent=reason), True))
    if wanted.only:
        work = [one for one in work if any(word in one[0].id for word in wanted.only)]
    began = time.monotonic()
    outcomes = _tried(work, wanted.jobs)
    return _report(outcomes, wanted, time.monotonic() - began)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation")
    parser.add_argument("--table", action="store_true", help="the mutants of mutants.toml")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="N more, drawn by chance")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--areas", nargs="+", choices=list(AREAS), default=list(AREAS))
    parser.add_argument("--only", nargs="+", metavar="ID", help="those whose id contains one of these words")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="where the report is written")
    return parser.parse_args()


def _equivalents() -> list[Mutant]:
    return mutants(EQUIVALENTS) if EQUIVALENTS.exists() else []


def _tried(work: list[tuple[Mutant, bool]], jobs: int) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        trees: SimpleQueue[Tree] = SimpleQueue()
        for number in range(jobs):
            trees.put(Tree(Path(folder, str(number))))

        def one(entry: tuple[Mutant, bool]) -> Outcome:
            mutant, by_chance = entry
            tree = trees.get()
            began = time.monotonic()
            try:
                verdict, run = tried(tree, mutant, *(fitting(mutant.file) if by_chance else (mutant.tests,)))
            finally:
                trees.put(tree)
            outcome = Outcome(mutant, by_chance, verdict, run, time.monotonic() - began)
            by = f" by {run.failed}" if run.failed else " (a test hung)" if run.hung else ""
            print(f"{verdict:10} {outcome.seconds:5.0f} s  {mutant.id}{by}", flush=True)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            outcomes = list(pool.map(one, work))
            _confirm(trees, pool, outcomes)
    return outcomes


def _confirm(trees: SimpleQueue[Tree], pool: ThreadPoolExecutor, outcomes: list[Outcome]) -> None:
    """Every test that found a mutant passes without one. SystemExit when that is not so: then it found nothing."""

    def clean(tests: tuple[str, ...]) -> Run:
        tree = trees.get()
        try:
            return tree.run(tests, limit=1800)
        finally:
            trees.put(tree)

    # With all its parameters: their words may hold whatever separates them from the rest of a line.
    found = sorted({outcome.run.failed.partition("[")[0] for outcome in outcomes if outcome.run.failed})
    groups = [tuple(tests) for _, tests in groupby(found, key=lambda test: test.partition("::")[0])]
    for run in pool.map(clean, groups):
        if not run.passed:
            sys.exit(f"{run.failed} fails without any mutant, too: repair it and run again\n{run.output[-3000:]}")
    unnamed = [one for one in outcomes if one.verdict is Verdict.Found and not one.run.failed and not one.run.hung]
    runs = pool.map(clean, (one.mutant.tests or fitting(one.mutant.file)[0] for one in unnamed))
    for outcome, run in zip(unnamed, runs, strict=True):
        if not run.passed:
            sys.exit(f"the tests of {outcome.mutant.id} fail without any mutant, too: repair them and run again")


def _report(outcomes: list[Outcome], wanted: argparse.Namespace, seconds: float) -> int:
    report: dict[str, Any] = {
        "command": f"python -m benchmarks.mutation {' '.join(sys.argv[1:])}",
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "pytest": pytest.__version__,
        "cpus": os.cpu_count(),
        "seconds": round(seconds),
        "cpu_minutes": round(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) / 60, 1),
    }
    good = True
    for name, by_chance, goal in (("table", False, 1.0), ("drawn", True, GOAL)):
        group = [one for one in outcomes if one.drawn is by_chance]
        if not group:
            continue
        counts = {verdict.value: sum(one.verdict is verdict for one in group) for verdict in Verdict}
        judged = len(group) - counts["equivalent"]
        share = counts["found"] / judged if judged else 1.0
        good &= share >= goal
        report[name] = {"mutants": len(group), **counts, "share": round(share, 4), "goal": goal} | (
            {"seed": wanted.seed} if by_chance else {}
        )
        print(f"{name}: {counts['found']} of {judged} found, {share:.1%}; {counts['equivalent']} equivalent")
    report["mutants"] = [_row(one) for one in outcomes]
    if wanted.json:
        wanted.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    for one in outcomes:
        if one.verdict in (Verdict.Survived, Verdict.Unsettled):
            print(
                f"\nsurvived: {one.mutant.id} ({one.mutant.why})\n- {one.mutant.original}\n+ {one.mutant.replacement}"
            )
    return 0 if good else 1


def _row(outcome: Outcome) -> dict[str, Any]:
    mutant = outcome.mutant
    row: dict[str, Any] = {"id": mutant.id, "verdict": outcome.verdict.value, "by": outcome.run.failed}
    if outcome.run.hung:
        row["hung"] = True
    if outcome.verdict is not Verdict.Found:
        row |= {"original": mutant.original, "replacement": mutant.replacement}
    if mutant.equivalent:
        row["reason"] = mutant.equivalent
    return row


if __name__ == "__main__":
    sys.exit(main())
