"""The data of `make mutation` fits the code, and its program finds what a test finds and reports what none does."""

import ast
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.mutation import trial
from benchmarks.mutation.draw import AREAS, candidates, drawn, of_file
from benchmarks.mutation.fitting import NEAREST, fitting
from benchmarks.mutation.mutant import ROOT, Mutant, TableError, mutants
from benchmarks.mutation.trial import Tree, Verdict, tried

TABLE = mutants()


@pytest.mark.parametrize("mutant", TABLE, ids=lambda mutant: mutant.id)
def test_every_row_fits_the_code_and_its_tests_exist(mutant: Mutant) -> None:
    """A row that fails here names code that has changed: make it follow, do not drop it."""
    ast.parse(mutant.applied((ROOT / mutant.file).read_text()))
    assert all((ROOT / test).exists() for test in mutant.tests)


def test_a_row_whose_original_is_not_there_once_is_an_error() -> None:
    row = Mutant("x", "f.py", "a = 1\n", "a = 2\n", ("t.py",), "why")
    assert row.applied("a = 1\nb = 1\n") == "a = 2\nb = 1\n"
    for source in ("a = 3\n", "a = 1\na = 1\n"):
        with pytest.raises(TableError, match=r"its original is in f\.py \d times, not once"):
            row.applied(source)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("one", "a", "a")], "one: a row needs tests and a replacement that differs"),
        ([("one", "a", "b"), ("one", "c", "d")], r"two mutants of one id: \['one'\]"),
    ],
)
def test_a_table_that_says_nothing_or_one_thing_twice_is_an_error(
    tmp_path: Path, rows: list[tuple[str, str, str]], words: str
) -> None:
    text = "".join(
        f"[[mutant]]\nid = '{id}'\nfile = 'f'\noriginal = '{old}'\nreplacement = '{new}'\ntests = ['t']\nwhy = 'w'\n"
        for id, old, new in rows
    )
    (tmp_path / "table.toml").write_text(text)
    with pytest.raises(TableError, match=words):
        mutants(tmp_path / "table.toml")


CODE = '''\
"""A module."""

import logging

logger = logging.getLogger("x")


def between(low: int, value: int, high: int = 7) -> bool:
    logger.warning("asked for %s", value + 1)
    if value == 3:
        raise ValueError(f"{value + 1} is not allowed")
    found = low < value and not value > high
    print(low, high)
    return found
'''


def test_faults_are_made_of_code_and_not_of_words(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(CODE)
    made = list(of_file(path))
    assert Counter(mutant.id.rsplit(":", 1)[1] for mutant in made) == {
        "constant": 2,  # 7 and the 3 of the condition
        "compare": 3,
        "condition": 1,
        "boolean": 1,
        "not": 1,
        "dropped call": 1,
        "swapped arguments": 1,
        "nothing returned": 1,
    }
    assert "    found = (low < value or not value > high)\n" in [mutant.replacement for mutant in made]
    for mutant in made:
        changed = mutant.applied(CODE)
        ast.parse(changed)
        assert changed != CODE
        assert changed.count("\n") == CODE.count("\n")


def test_a_draw_is_the_same_for_a_seed_and_takes_the_areas_in_turn() -> None:
    first = drawn(1, 9)
    assert first == drawn(1, 9)
    assert first != drawn(2, 9)
    assert [mutant.why for mutant in first] == [*AREAS] * 3
    assert len({mutant.id for mutant in first}) == 9


@pytest.mark.parametrize("area", AREAS)
def test_every_fault_that_can_be_drawn_is_python(area: str) -> None:
    pool = candidates(area)
    assert len(pool) > 500
    for mutant in pool[:: len(pool) // 50]:
        ast.parse(mutant.applied((ROOT / mutant.file).read_text()))


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("runtime/graphpod_runtime/engine/capture/selfcheck.py", "tests/contracts/test_14_self_check.py"),
        ("runtime/graphpod_runtime/engine/schedule/scheduler.py", "tests/unit/runtime/engine/test_scheduler.py"),
        ("runtime/graphpod_runtime/front/text/detokenize.py", "tests/unit/runtime/front/test_detokenize.py"),
        ("operator/graphpod_operator/cache/store.py", "tests/unit/operator/cache/test_store.py"),
        ("operator/graphpod_operator/render/pod/template.py", "tests/unit/operator/render/test_pinned_rendering.py"),
    ],
)
def test_the_nearest_tests_of_a_file_come_first(file: str, test: str) -> None:
    nearest, others = fitting(file)
    assert test in nearest
    assert len(nearest) <= NEAREST
    assert not set(nearest) & set(others)


def test_tests_that_run_the_front_as_a_process_fit_every_file_of_it() -> None:
    for file in (ROOT / "runtime/graphpod_runtime/front").rglob("*.py"):
        nearest, others = fitting(str(file.relative_to(ROOT)))
        assert "tests/unit/runtime/front/test_openai.py" in (*nearest, *others), file


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A copy of a project of one function and one test."""
    project, copy = tmp_path / "project", tmp_path / "copy"
    (project / "policy").mkdir(parents=True)
    (project / "policy/limits.py").write_text("def within(value):\n    return value < 10\n")
    (project / "test_limits.py").write_text(
        "from limits import within\n\n\ndef test_within():\n    assert within(9)\n    assert not within(11)\n"
    )
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    monkeypatch.setattr(trial, "ROOT", project)
    return Tree(copy)


def test_a_mutant_is_found_by_name_or_survives_and_the_tree_is_clean_afterwards(small: Tree) -> None:
    tests = ("test_limits.py",)
    wrong = Mutant("wrong", "policy/limits.py", "value < 10", "value > 10", tests, "why")
    verdict, run = tried(small, wrong, tests)
    assert (verdict, run.failed) == (Verdict.Found, "test_limits.py::test_within"), run.output
    unseen = replace(wrong, id="unseen", replacement="value <= 10")
    assert tried(small, unseen, (), tests)[0] is Verdict.Survived
    assert tried(small, replace(unseen, equivalent="10 is never asked for"), tests)[0] is Verdict.Equivalent
    assert (small.folder / "policy/limits.py").read_text() == "def within(value):\n    return value < 10\n"


def test_the_first_test_that_failed_is_named_and_no_line_of_a_log() -> None:
    output = "ERROR    graphpod.front:ending.py:45 ModelInvalid\nFAILED tests/a.py::test_b[c d] - assert x - y\n"
    assert trial.first_failed(output) == "tests/a.py::test_b[c d]"
    assert trial.first_failed("1 passed") == ""
