"""What `make check` runs: the tests in a process that the changes since main touch. `python -m tests.touched --help`.

A change touches a test file that imports the changed file, over however many steps. As an import counts, too:
- a module that a file of tests names as text (`python -m graphpod_runtime.cli`), and a script of its folder ("x.py"),
- every conftest.py above a file of tests, but for the first one, whose fixtures are about clusters,
- a file that is no module (a golden, a chart, a page), for the modules of its folder and those that name it as text.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import grimp

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("policy", "operator", "runtime", "sources")
"""Folders whose packages are imported without the folder's name."""
PACKAGES = (
    *("graphpod_policy", "graphpod_operator", "graphpod_runtime", "graphpod_sources"),
    *("testbed", "demo", "stubs", "truth", "monitoring", "peers", "benchmarks", "tests"),
)
IN_PROCESS = ("tests/unit/", "tests/contracts/")
ALWAYS = "tests/unit/house/"
"""What looks at the whole tree."""
LONG = {
    *(f"tests/contracts/test_{name}.py" for name in ("01_break_arena", "04_compiled_halves", "16_equality")),
    "tests/unit/runtime/bench/test_command.py",
    "tests/unit/runtime/compiled/test_cache.py",
    *(f"tests/unit/runtime/front/test_{name}.py" for name in ("attacks", "life", "real_engine")),
    "tests/unit/runtime/graphs/test_piecewise.py",
    "tests/unit/runtime/kernels/test_draw.py",
    "tests/unit/runtime/models/test_layer_functions.py",
    "tests/unit/start/test_outcomes.py",
    "tests/unit/truth/test_matrix.py",
    "tests/unit/truth/test_result.py",
}
"""Two thirds of the time of all tests in a process: they start engines or compile. An inner loop leaves them out where
the change is far from them.
"""
OF_ALL = {"pyproject.toml", "locks/dev.txt", "tests/conftest.py"}
"""What touches every test."""
NAMED = re.compile(rf"\b(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
SCRIPT = re.compile(r"""["'](\w+)\.py["']""")
QUOTED = re.compile(r"""["']([\w.*/-]+)""")
TRUNK = ("main", "origin/main")
PYTEST = ("-q", "--numprocesses", "2")


@dataclass(frozen=True)
class Tree:
    """Which module of a checkout needs which."""

    root: Path = ROOT

    @cached_property
    def graph(self) -> grimp.ImportGraph:
        graph = grimp.build_graph(*PACKAGES, cache_dir=None)
        for module in [one for one in graph.modules if one.startswith("tests.")]:
            for needed in {*self._named(module), *self._conftests(module)} & graph.modules - {module}:
                graph.add_import(importer=module, imported=needed)
        return graph

    @cached_property
    def files(self) -> dict[str, PurePosixPath]:
        """Module → its file, relative to the root."""
        found = {}
        for folder in (*SOURCES, *PACKAGES):
            base = self.root / folder if folder in SOURCES else self.root
            for path in (self.root / folder).rglob("*.py"):
                found[_module(path.relative_to(base))] = PurePosixPath(path.relative_to(self.root))
        return found

    @cached_property
    def texts(self) -> dict[str, str]:
        """Module → its source."""
        return {module: (self.root / path).read_text() for module, path in self.files.items()}

    def touched(self, changed: Iterable[str]) -> list[str]:
        """The test files, sorted, that changes of these files touch: paths relative to the root, with `/`."""
        tests = {str(path): module for module, path in self.files.items() if path.name.startswith("test_")}
        changed = set(changed)
        if changed & OF_ALL:
            return sorted(tests)
        modules = {module for path in changed for module in self._changed_by(PurePosixPath(path))}
        reached = modules.union(*(self.graph.find_downstream_modules(module) for module in modules))
        return sorted(path for path, module in tests.items() if module in reached or path.startswith(ALWAYS))

    def far(self, changed: Iterable[str]) -> list[str]:
        """Those of LONG that need the changed files only through others, and are not about their package; sorted."""
        changed = set(changed)
        modules = {module for path in changed for module in self._changed_by(PurePosixPath(path))}
        near = modules.union(*(self.graph.find_modules_that_directly_import(module) for module in modules))
        return sorted(
            test
            for test in LONG
            if _module(PurePosixPath(test)) not in near and not any(path.startswith(_about(test)) for path in changed)
        )

    def _changed_by(self, path: PurePosixPath) -> Iterator[str]:
        """The modules that are no longer the same when this file has changed."""
        if path.suffix != ".py":
            folder = next((above for above in path.parents if self._in(above)), None)
            yield from self._in(folder) if folder else ()
            yield from (module for module, text in self.texts.items() if _names(text, path))
            return
        module = _module(path.relative_to(path.parts[0]) if path.parts[0] in SOURCES else path)
        if module in self.files:
            yield module
            if path.name == "__init__.py":
                yield from self.graph.find_descendants(module)
        elif not path.name.startswith("test_"):  # deleted or moved: those that need it are near
            yield from self._in(path.parent)

    def _in(self, folder: PurePosixPath) -> list[str]:
        """The modules of a folder itself."""
        return [module for module, path in self.files.items() if path.parent == folder]

    def _named(self, module: str) -> Iterator[str]:
        """Modules that stand as text in this one, by their name or, in the same folder, by their file's."""
        text = self.texts.get(module, "")
        for name in NAMED.findall(text):
            while name not in self.files and "." in name:
                name = name.rpartition(".")[0]
            yield name
        folder = module.rpartition(".")[0]
        yield from (f"{folder}.{name}" for name in SCRIPT.findall(text))

    def _conftests(self, module: str) -> Iterator[str]:
        """The conftest.py of each folder above a module, but for tests/conftest.py."""
        parts = module.split(".")
        yield from (".".join((*parts[:depth], "conftest")) for depth in range(2, len(parts)))


def _module(path: Path | PurePosixPath) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _about(test: str) -> str:
    """`tests/unit/runtime/front/test_x.py` → `runtime/graphpod_runtime/front/`; a folder that is none for others."""
    root, folder = PurePosixPath(test).parent.parts[-2:]
    return f"{root}/graphpod_{root}/{folder}/"


def _names(text: str, path: PurePosixPath) -> bool:
    """Whether a file, or a folder above it, stands as a string in a module's text."""
    own = {str(one) for one in (path, *path.parents[:-1])}
    return any(word.rstrip("/") in own or PurePosixPath(word) == path for word in QUOTED.findall(text))


def changed(base: str, root: Path = ROOT) -> list[str]:
    """Files that differ from where this branch left `base`: committed, changed, deleted or not yet known to git."""
    fork = _git(root, "merge-base", "HEAD", base).strip()
    names = _git(root, "diff", "--name-only", "--no-renames", fork) + _git(
        root, "ls-files", "--others", "--exclude-standard"
    )
    return sorted(set(names.splitlines()))


def trunk(root: Path = ROOT) -> str | None:
    """The branch that changes are counted from, if `root` is a checkout that has it."""
    command = ("git", "for-each-ref", "--format=%(refname:short)")
    known = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.split()
    return next((name for name in TRUNK if name in known), None)


def _git(root: Path, *words: str) -> str:
    return subprocess.run(("git", *words), cwd=root, capture_output=True, text=True, check=True).stdout


def _in_words(files: Iterable[str]) -> str:
    """`tests/unit/policy 16, tests/contracts 3`: how many files of which folder."""
    folders = Counter(str(PurePosixPath(file).parent) for file in files)
    return ", ".join(f"{folder} {number}" for folder, number in sorted(folders.items()))


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.touched", description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every test in a process, whatever has changed")
    parser.add_argument("--base", help="count changes from here (default: main)")
    parser.add_argument("--list", action="store_true", help="print the test files and run nothing")
    asked = parser.parse_args(words)
    base = None if asked.all else asked.base or trunk()
    files = changed(base) if base else None
    tree = Tree()
    tests = tree.touched(OF_ALL if files is None else files)
    if asked.list:
        print(*tests, sep="\n")
        return
    far = {*tests} & {*tree.far(files)} if files is not None else set()
    here = [test for test in tests if test.startswith(IN_PROCESS) and test not in far]
    if files is None:
        print(f"tests: all {len(here)} files in a process" + ("" if asked.all else f": there is no branch {TRUNK[0]}"))
    else:
        print(f"tests: {len(files)} files differ from {base}; with {ALWAYS} they touch {len(here)}: {_in_words(here)}")
        if far:
            print(
                f"tests: left out, they take minutes and need the change through others only: {' '.join(sorted(far))}"
            )
        if clusters := [test for test in tests if not test.startswith(IN_PROCESS)]:
            print(f"tests: make test runs those on clusters, too: {_in_words(clusters)}")
        print("tests: all files in a process: make check ALL=1", flush=True)
    os.execv(sys.executable, (sys.executable, "-m", "pytest", *PYTEST, *here))


if __name__ == "__main__":
    main(sys.argv[1:])
