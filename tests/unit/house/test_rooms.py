"""A folder's listing can be read at a glance, and explains what lies in it."""

import subprocess
from collections import Counter
from pathlib import Path, PurePath

ROOT = Path(__file__).resolve().parents[3]
MOST = 15
"""Modules of a folder, a package's `__init__.py` aside."""


def test_no_folder_but_tests_has_more_modules_than_a_glance_takes() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = [PurePath(file) for file in listed.stdout.splitlines()]
    folders = Counter(file.parent for file in modules if file.name != "__init__.py" and file.parts[0] != "tests")
    assert len(folders) > 50
    crowded = {str(folder): count for folder, count in folders.items() if count > MOST}
    assert crowded == {}, "by meaning, move some of them to a folder of their own"
