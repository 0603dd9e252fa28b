"""What one worker runs in a row when `make test` has several of them (`workers.py`).

Tests on clusters mostly wait, and those in a process compute: together they take little more than the longest unit. A
level that shares a cluster is one unit, so that its cluster starts once. `api` takes longest and its cluster is cheap:
it is three units, each on a cluster of its worker. Elsewhere a file is a unit.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath

CLUSTERS = 4
"""So many workers run such levels at a time, and no more while other tests wait: what theirs wait for has a clock."""
LONGEST_FIRST = ("e2e", "api", "sim")
"""Levels that one worker of several runs from beginning to end."""
APART = (
    "e2e/test_ipv6.py",
    "e2e/test_testbed.py",
    "e2e/test_truth.py",
    "e2e/test_converted_weights.py",
    "e2e/test_images.py",
)
"""Files of such a level that do without its cluster: they have clusters of their own, or none."""
THEN = (*APART, "unit/start", "unit/truth", "contracts", "unit/runtime")
"""What several workers begin with after that, so that only short files are left for the end."""
HALVED, HALF = "tests/api/operator", "m"
"""A folder that is two units, and the first letter of the second one's files."""


def units_of(tests: Iterable[str]) -> list[list[int]]:
    """The indices of the tests of each unit, given their ids; a unit's turn is that of its first test."""
    units: dict[str, list[int]] = {}
    for index, test in enumerate(tests):
        units.setdefault(unit_of(test), []).append(index)
    return list(units.values())


def unit_of(nodeid: str) -> str:
    """`tests/sim/x/test_y.py::test_z` → `tests/sim`; `tests/unit/x/test_y.py::test_z` → `tests/unit/x/test_y.py`."""
    file = PurePosixPath(nodeid.partition("::")[0])
    if str(file).removeprefix("tests/") in APART:
        return str(file)
    if str(file.parent) == HALVED:
        return f"{HALVED} {'first' if file.name.removeprefix('test_') < HALF else 'second'} half"
    return next((str(parent) for parent in file.parents if parent.name in LONGEST_FIRST), str(file))


def on_clusters(nodeid: str) -> bool:
    """Whether a test is of a level with clusters."""
    return nodeid.removeprefix("tests/").partition("/")[0] in LONGEST_FIRST


def turn_of(path: str) -> tuple[bool, int]:
    """When a file's turn is among several workers."""
    first = path not in APART and path.partition("/")[0] in LONGEST_FIRST
    table = LONGEST_FIRST if first else THEN
    return not first, next((turn for turn, start in enumerate(table) if path.startswith(start)), len(table))
