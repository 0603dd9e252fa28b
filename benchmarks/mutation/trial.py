"""A mutant's trial: a copy of the tree with the fault in it, in which the tests run until one fails."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.mutation.mutant import ROOT, Mutant

LIMIT = 1200
"""Seconds of one run of tests. All tests of a package take less on an idle machine."""
TEST_LIMIT = 120
"""Seconds of one test. No test takes as long on an idle machine, so one that does hangs, and the fault is found."""
HANGS = "Timeout (0:"
"""What faulthandler prints before it ends a run in which a test hangs."""


class Verdict(StrEnum):
    """What the tests say about a mutant."""

    Found = "found"
    Survived = "survived"
    Unsettled = "unsettled"
    """The tests ran out of time, none of them hanging: nothing was found."""
    Equivalent = "equivalent"
    """It survived, and the data says why no test can find it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of tests: whether all passed, and the first that failed; "" for none: the run itself failed, a test hung,
    or (`late`) all of them together took too long.
    """

    passed: bool
    failed: str = ""
    hung: bool = False
    late: bool = False
    output: str = ""


class Tree:
    """A copy of the tree's files, as they are now, with the environment of the original."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self._touched = 0

    def write(self, file: str, text: str) -> None:
        """`text` into `file`. Python sees by its time, in seconds, that compiled code is of another text."""
        path = self.folder / file
        self._touched += 10
        path.write_text(text)
        stamp = path.stat().st_mtime + self._touched
        os.utime(path, (stamp, stamp))

    def run(self, tests: tuple[str, ...], limit: float = LIMIT) -> Run:
        """Runs `tests` until one fails."""
        sources = [str(self.folder / root) for root in ("policy", "operator", "runtime")]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "--no-header", "-p", "no:cacheprovider"]
        command += ["-o", f"faulthandler_timeout={TEST_LIMIT}", "-o", "faulthandler_exit_on_timeout=true"]
        with tempfile.TemporaryFile("w+", errors="replace") as printed:
            process = subprocess.Popen(
                # What is drawn by hypothesis is the same for every mutant.
                [*command, "--hypothesis-seed=0", "-m", "not gpu and not slow", *tests],
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sources), "OMP_NUM_THREADS": "1"},
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(limit)
                late = False
            except subprocess.TimeoutExpired:
                late = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that its tests started
            process.wait()
            printed.seek(0)
            output = printed.read()
        if late:
            return Run(False, late=True, output=output)
        return Run(process.returncode == 0, first_failed(output), hung=HANGS in output, output=output)


def first_failed(output: str) -> str:
    """The first test that pytest's summary names; "" for none. A line of a log may begin with ERROR, too."""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+\.py.*?)(?: - .*)?$", output, re.MULTILINE)
    return failed[1] if failed else ""


def tried(tree: Tree, mutant: Mutant, *rounds: tuple[str, ...]) -> tuple[Verdict, Run]:
    """`mutant` in `tree`, by one group of tests after the other until one finds it; the tree is clean afterwards."""
    source = (tree.folder / mutant.file).read_text()
    tree.write(mutant.file, mutant.applied(source))
    try:
        run = Run(True)
        for tests in filter(None, rounds):
            run = tree.run(tests)
            if run.late:
                return Verdict.Unsettled, run
            if not run.passed:
                return Verdict.Found, run
        return Verdict.Equivalent if mutant.equivalent else Verdict.Survived, run
    finally:
        tree.write(mutant.file, source)
