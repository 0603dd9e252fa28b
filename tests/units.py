"""What one worker runs in a row when `make test` has several of them (pytest-xdist), and in which order.

Tests on clusters mostly wait, and those in a process compute: together they take little more than the longest level. A
level that shares a cluster is one unit, so that its cluster starts once; elsewhere a file is one.
"""

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

from tests.conftest import APART, LONGEST_FIRST


class ByUnit(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """`tests/api/x/test_y.py::test_z` → `tests/api`; `tests/unit/x/test_y.py::test_z` → `tests/unit/x/test_y.py`."""
    file = PurePosixPath(nodeid.partition("::")[0])
    if str(file).removeprefix("tests/") in APART:
        return str(file)
    return next((str(parent) for parent in file.parents if parent.name in LONGEST_FIRST), str(file))
