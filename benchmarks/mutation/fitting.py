"""Which tests fit a source file: those named after it first, then those that import it, the fewer steps the better.

Tests in the folder of the source's package count, too, last of all: the front's run it as a process.
"""

import ast
from collections import deque
from functools import cache
from pathlib import Path

from benchmarks.mutation.mutant import ROOT

SOURCES = ("policy", "operator", "runtime")
"""Source roots."""
TESTS = ("tests/unit/operator", "tests/unit/policy", "tests/unit/runtime", "tests/contracts")
"""Where tests of operator, engine and front run in a process."""
NEAREST = 6
FAR = 99
"""Steps from a test to a source that it does not import."""


def fitting(file: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the nearest test files, all others that reach `file` by imports), both nearest first."""
    target, package = _module(ROOT / file), Path(file).parts[2:-1][:1]
    ranked = sorted(
        (not _named_after(test, file), steps, len(_imports(test)), str(test.relative_to(ROOT)))
        for folder in TESTS
        for test in (ROOT / folder).rglob("test_*.py")
        if (steps := _steps(test).get(target, FAR if _package(test) == package else None)) is not None
    )
    found = tuple(test for *_, test in ranked)
    return found[:NEAREST], found[NEAREST:]


def _package(test: Path) -> tuple[str, ...]:
    """("front",) for tests/unit/runtime/front/test_x.py."""
    parts = test.relative_to(ROOT / "tests").parts[:-1]
    return parts[2:3] if parts[:2] == ("unit", "runtime") else ("",)


def _named_after(test: Path, file: str) -> bool:
    """test_x_y.py is named after x.py and x_y.py; test_14_x_y.py, of a contract, after xy.py as well."""
    stem, words = Path(file).stem, test.stem.removeprefix("test_").split("_")
    whole = "".join(word for word in words if not word.isdigit())
    return stem in words or stem.replace("_", "") == whole


@cache
def _steps(test: Path) -> dict[str, int]:
    """Module -> how many imports lie between it and `test`, which brings the conftest files above it."""
    steps: dict[str, int] = {}
    conftests = [folder / "conftest.py" for folder in test.parents if folder.is_relative_to(ROOT / "tests")]
    waiting = deque([(name, 1) for name in sorted(_imports(test))])
    waiting.extend((name, 2) for path in conftests if path.exists() for name in sorted(_imports(path)))
    while waiting:
        name, step = waiting.popleft()
        if name not in steps and (path := _path(name)) is not None:
            steps[name] = step
            waiting.extend((further, step + 1) for further in sorted(_imports(path)))
    return steps


@cache
def _imports(path: Path) -> frozenset[str]:
    """Modules of ours that a file imports, within functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(name for name in names if _path(name) is not None)


@cache
def _path(module: str) -> Path | None:
    """The file of a module of ours."""
    parts = module.split(".")
    for root in (*SOURCES, "."):
        for path in (ROOT / root / Path(*parts).with_suffix(".py"), ROOT / root / Path(*parts) / "__init__.py"):
            if path.is_file() and (root != "." or parts[0] == "tests"):
                return path
    return None


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] in SOURCES else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
