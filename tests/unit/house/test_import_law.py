"""What import-linter cannot say: the standard library only, and nothing heavy at the start of a command line."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphpod_policy

HEAVY = {
    "graphpod_operator.cli": ("kopf", "kubernetes", "torch"),
    "graphpod_runtime.cli": ("torch", "transformers"),
    "graphpod_runtime.engine.process": ("torch",),  # its heart beats while torch is imported
    "graphpod_runtime.wire.socket": ("torch",),
}


def imported(file: Path) -> Iterator[str]:
    """Top-level names of absolute imports anywhere in a file."""
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def test_the_policy_needs_the_standard_library_only() -> None:
    package = Path(graphpod_policy.__file__).parent
    foreign = {
        f"{file.relative_to(package)} imports {name}"
        for file in package.rglob("*.py")
        for name in imported(file)
        if name not in sys.stdlib_module_names and name != "graphpod_policy"
    }
    assert foreign == set()


def test_the_operator_folder_is_no_package() -> None:
    """With an __init__.py it would shadow the standard library's `operator` wherever the root is on the path."""
    assert not (Path(__file__).resolve().parents[3] / "operator/__init__.py").exists()


@pytest.mark.parametrize("module", HEAVY)
def test_a_light_module_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set(sys.modules) & set({HEAVY[module]!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "[]", done.stderr
