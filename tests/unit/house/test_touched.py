"""`make check` runs every test in a process that can see a change, and says what it left out."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.mutation.mutant import Mutant, mutants
from tests.touched import ALWAYS, IN_PROCESS, LONG, OF_ALL, Tree, changed, trunk

RULES, HUB = "tests/unit/policy/test_rules.py", "tests/unit/stubs/test_hub.py"
TREE = Tree()
HOUSE = {path for path in TREE.touched(OF_ALL) if path.startswith(ALWAYS)}


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.id)
def test_the_tests_that_find_a_fault_in_a_file_are_among_those_it_touches(mutant: Mutant) -> None:
    touched = TREE.touched([mutant.file])
    assert {test for test in mutant.tests if not any(path.startswith(test) for path in touched)} == set()


@pytest.mark.parametrize(
    ("file", "touched", "untouched"),
    [
        ("policy/graphpod_policy/rules/hopper.py", RULES, HUB),
        ("stubs/hub.py", HUB, RULES),
        # run as processes: by a module's name, and by a script's
        ("runtime/graphpod_runtime/cli.py", "tests/unit/start/test_outcomes.py", RULES),
        ("runtime/graphpod_runtime/front/app.py", "tests/unit/runtime/front/test_openai.py", HUB),
        # fixtures
        ("tests/unit/runtime/conftest.py", "tests/unit/runtime/engine/test_loop.py", RULES),
        ("tests/eventually.py", "tests/api/operator/test_quiet.py", RULES),
        # files that are no modules
        ("tests/unit/operator/goldens/gpu.out.yaml", "tests/unit/operator/test_examples.py", RULES),
        ("charts/graphpod/values.yaml", "tests/unit/chart/test_chart_files.py", RULES),
        # a package's first file runs before each of its modules
        ("policy/graphpod_policy/rules/__init__.py", RULES, HUB),
        # deleted: whatever needed it stands near
        ("policy/graphpod_policy/rules/gone.py", RULES, HUB),
        ("tests/unit/policy/test_gone.py", "tests/unit/house/test_touched.py", RULES),
    ],
)
def test_a_changed_file_touches_what_needs_it_over_however_many_steps(file: str, touched: str, untouched: str) -> None:
    found = TREE.touched([file])
    assert touched in found
    assert untouched in TREE.touched(OF_ALL)
    assert untouched not in found


def test_what_looks_at_the_whole_tree_is_always_run() -> None:
    assert HOUSE
    assert {*TREE.touched([])} == HOUSE
    assert {path for path in TREE.touched(["SECURITY.md"]) if path.startswith(IN_PROCESS)} == HOUSE


@pytest.mark.parametrize("file", sorted(OF_ALL))
def test_what_every_test_stands_on_touches_all(file: str) -> None:
    assert (TREE.root / file).exists()
    assert {str(path.relative_to(TREE.root)) for path in (TREE.root / "tests").rglob("test_*.py")} == {
        *TREE.touched([file])
    }


def git(folder: Path, *words: str) -> None:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(("git", *named, *words), cwd=folder, check=True, capture_output=True)


def test_changes_are_counted_from_where_the_branch_left_main(tmp_path: Path) -> None:
    git(tmp_path, "init", "--initial-branch", "main")
    for name in ("moved", "deleted", "edited", "left"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("ignored\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "checkout", "-b", "branch")
    (tmp_path / "committed").write_text("x")
    git(tmp_path, "mv", "moved", "there")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "second")
    (tmp_path / "deleted").unlink()
    for name in ("edited", "new", "ignored"):
        (tmp_path / name).write_text("changed")
    assert changed("main", tmp_path) == ["committed", "deleted", "edited", "moved", "new", "there"]
    git(tmp_path, "stash", "--include-untracked")
    git(tmp_path, "checkout", "main")
    (tmp_path / "left").write_text("main moved on")
    git(tmp_path, "commit", "-am", "third")
    git(tmp_path, "checkout", "branch")
    assert changed("main", tmp_path) == ["committed", "moved", "there"]
    assert trunk(tmp_path) == "main"


def test_a_checkout_without_main_has_no_base(tmp_path: Path) -> None:
    git(tmp_path, "init", "--initial-branch", "other")
    assert trunk(tmp_path) is None


@pytest.mark.parametrize("file", sorted(LONG))
def test_a_long_file_is_run_for_what_it_imports_itself_and_left_out_for_what_is_far(file: str) -> None:
    assert file not in TREE.far([file])
    module = file.removesuffix(".py").replace("/", ".")
    near = [str(TREE.files[one]) for one in TREE.graph.find_modules_directly_imported_by(module) if one in TREE.files]
    assert near
    assert [one for one in near if file in TREE.far([one])] == []
    assert file in TREE.far(["operator/graphpod_operator/watch/relist.py"])


def test_a_long_file_about_a_package_is_run_for_all_of_it() -> None:
    changed = ["runtime/graphpod_runtime/front/status.py"]
    assert "tests/unit/runtime/front/test_life.py" not in TREE.far(changed)
    assert "tests/unit/runtime/graphs/test_piecewise.py" in TREE.far(changed)
