"""Workers on a small project of their own: it reports what one process would, whatever becomes of a worker."""

import os
import re
import signal
import struct
import subprocess
import sys
import warnings
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.units import CLUSTERS
from tests.workers import Shared, Worker, as_warning

ROOT = Path(__file__).resolve().parents[3]
FILES = {
    "test_a.py": """
import os, sys, warnings
import pytest
HERE = os.getpid()

@pytest.fixture(scope="session", autouse=True)
def held():
    yield
    if os.environ.get("SPOILT"):
        raise ValueError("the shared fixture is not whole")

def test_is_in_a_fork_of_what_was_collected_with_a_folder_of_its_own(tmp_path):
    assert os.getppid() == HERE
    assert tmp_path.parent.name == "worker" + os.environ["GRAPHPOD_TEST_WORKER"]

def test_says_and_fails():
    os.write(1, b"said by a file descriptor, ")
    print("said by the program")
    warnings.warn("soon no more", FutureWarning)
    assert [1, 2] == [1, 3]

def test_passes(): pass
""",
    "test_b.py": """
import os, signal

def test_before(): pass
def test_ends_its_process(): os.kill(os.getpid(), signal.SIGKILL)
def test_after(): pass
""",
    "test_c.py": "def test_c(): print('not shown'); assert True",
}


def ran(folder: Path, *options: str, spoilt: str = "") -> str:
    """What pytest says of FILES with two workers."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    # with temporary folders of its own: pytest removes old ones of other runs as it ends, and warns where it cannot
    own = "--rootdir", folder, "--basetemp", folder.with_name(f"{folder.name}-of-workers")
    command = [sys.executable, "-m", "pytest", "-p", "tests.workers", "-n", "2", *own]
    done = subprocess.run(
        [*command, "-c", folder / "pytest.ini", "-p", "no:cacheprovider", *options, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "SPOILT": spoilt, "COLUMNS": "300"},
    )
    assert done.stderr == ""
    assert done.returncode == 1, done.stdout
    return done.stdout


def test_every_test_is_reported_once_and_one_that_ends_its_worker_fails_alone(tmp_path: Path) -> None:
    said = ran(tmp_path)
    assert "2 failed, 5 passed, 1 warning in" in said, said
    assert re.search(r"^FAILED .*/test_a.py::test_says_and_fails - assert \[1, 2\] == \[1, 3\]", said, re.M)
    assert "said by a file descriptor, said by the program" in said
    assert "FutureWarning: soon no more" in said
    assert re.search(r"^FAILED .*/test_b.py::test_ends_its_process - worker \d ended with -9 in this test", said, re.M)
    assert "not shown" not in said


def test_after_the_first_failure_no_further_unit_begins_where_pytest_is_to_stop(tmp_path: Path) -> None:
    said = ran(tmp_path, "-x", "-k", "fails or passes or test_c", "--numprocesses", "1")
    assert "stopping after 1 failures" in said
    assert "1 failed, 4 deselected" in said


def test_what_fails_as_a_worker_ends_fails_the_run(tmp_path: Path) -> None:
    said = ran(tmp_path, "-k", "test_passes", spoilt="yes")
    assert "1 passed, 6 deselected, 1 error in" in said
    assert "ValueError: the shared fixture is not whole" in said


def test_so_many_workers_are_on_clusters_and_no_more_while_other_tests_wait() -> None:
    tests = [f"tests/sim/test_{number}.py::test_x" for number in range(CLUSTERS)]
    tests += ["tests/e2e/test_images.py::test_x", "tests/unit/test_a.py::test_x[sim/a]", "tests/unit/test_a.py::test_y"]
    session: Any = SimpleNamespace(items=[SimpleNamespace(nodeid=test) for test in tests])
    shared: Any = Shared(session)
    shared._units.popleft()  # that of the levels
    shared._working = {number: SimpleNamespace(unit=[number]) for number in range(CLUSTERS - 1)}
    shared._working["without a unit"] = SimpleNamespace(unit=[])
    assert shared._next() == [CLUSTERS]
    shared._units.appendleft([CLUSTERS])
    shared._working["on a cluster"] = SimpleNamespace(unit=[CLUSTERS - 1])
    assert shared._next() == [CLUSTERS + 1, CLUSTERS + 2]
    assert shared._next() == [CLUSTERS], "nothing else waits"
    assert shared._next() == []


def test_a_worker_that_ends_in_the_middle_of_a_word_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel ends a process whose memory runs out wherever it is."""
    session: Any = SimpleNamespace(items=[], config=SimpleNamespace(hook=None))
    shared, died = Shared(session), []
    monkeypatch.setattr(shared, "_died", died.append)
    one: Any = object.__new__(Worker)
    one.connection, theirs = Pipe()
    with one.connection:
        os.write(theirs.fileno(), struct.pack("!i", 100) + b"the first bytes")
        theirs.close()
        shared._hear(one)
    assert died == [one]


def test_an_order_to_a_worker_that_has_ended_before_it_read_the_last_one_is_lost() -> None:
    one: Any = object.__new__(Worker)
    one.connection, theirs = Pipe()
    with one.connection:
        one.stop()
        theirs.close()
        one.stop()
        one.stop()


def make_test(
    folder: Path, lint: str, tests: str, *options: str, ignoring: bool = False
) -> subprocess.CompletedProcess[str]:
    """Its recipe with shell commands in the place of `lint` and of pytest; `ignoring` interrupts."""
    for name, text in {"lint": f"[ $1 != lint ] || {{ {lint}; }}", "tests": tests}.items():
        (folder / name).write_text(f"#!/bin/bash\ncd {folder}\n{text}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["make", "-o", "tools", *options, "test", f"MAKE={folder / 'lint'}", f"RUN={folder / 'tests'}"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignoring else signal.SIG_DFL),
    )  # fmt: skip


TESTS_PASS = "true"
TESTS_BEGIN = "touch began; sleep 0.2"
"""An interrupt finds them at work: while bash begins, it looks at what it was given to ignore by taking it back."""
TESTS_WAIT = "touch began; exec sleep 300"
LINT_FAILS = "until [ -e began ]; do sleep 0.01; done; exit 1"


@pytest.mark.parametrize(
    ("lint", "tests", "ignoring", "wanted"),
    [
        ("true", TESTS_PASS, False, 0),
        ("true", "exit 5", False, 5),
        (LINT_FAILS, TESTS_BEGIN, True, 1),
        (LINT_FAILS, TESTS_WAIT, False, 130),
    ],
)
def test_make_test_fails_where_lint_or_a_test_does_and_lint_interrupts_the_tests(
    lint: str, tests: str, ignoring: bool, wanted: int, tmp_path: Path
) -> None:
    """Also of a script that keeps interrupts from what it starts."""
    done = make_test(tmp_path, lint, tests, ignoring=ignoring)
    assert re.findall(r"Error (\d+)", done.stderr) == ([str(wanted)] if wanted else []), done.stderr
    assert (done.returncode != 0) == bool(wanted)
    assert ("lint failed: the tests end" in done.stdout) == (lint != "true")


def test_make_test_that_only_shows_what_it_would_do_runs_nothing(tmp_path: Path) -> None:
    done = make_test(tmp_path, "touch linted", "touch tested", "-n")
    assert "pytest -m 'not gpu and not slow'" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lint", "tests"]


def test_a_warning_of_another_process_reads_as_its_own() -> None:
    with pytest.warns(FutureWarning, match="soon no more") as seen:
        warnings.warn("soon no more", FutureWarning, stacklevel=1)
    made = as_warning(str(seen[0].message), "FutureWarning", seen[0].filename, seen[0].lineno)
    assert str(made) == str(warnings.WarningMessage(seen[0].message, FutureWarning, seen[0].filename, seen[0].lineno))
