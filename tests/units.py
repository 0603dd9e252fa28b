"""What one worker runs in a row when `make test` has several of them (pytest-xdist), and in which order.

Tests on clusters mostly wait, and those in a process compute: together they take little more than the longest unit. A
level that shares a cluster is one unit, so that its cluster starts once. `api` takes longest and its cluster is cheap:
it is three units, each on a cluster of its worker. Elsewhere a file is a unit.
"""

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

from tests.conftest import APART, LONGEST_FIRST

HALVED, HALF = "tests/api/operator", "m"
"""A folder that is two units, and the first letter of the second one's files."""


class ByUnit(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """`tests/sim/x/test_y.py::test_z` → `tests/sim`; `tests/unit/x/test_y.py::test_z` → `tests/unit/x/test_y.py`."""
    file = PurePosixPath(nodeid.partition("::")[0])
    if str(file).removeprefix("tests/") in APART:
        return str(file)
    if str(file.parent) == HALVED:
        return f"{HALVED} {'first' if file.name.removeprefix('test_') < HALF else 'second'} half"
    return next((str(parent) for parent in file.parents if parent.name in LONGEST_FIRST), str(file))
