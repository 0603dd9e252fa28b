"""Processor seconds of each file of tests: of the process that runs it, and of that process's children as they end.

What a cluster's nodes run is nobody's child: the engines of `e2e` are not in here.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator

SPENT = "processor seconds"
"""The property of a test's last report that has them."""
SHOWN = 20


def spent_here() -> float:
    """Until now."""
    return sum(os.times()[:4])


def told(reports: Iterable[tuple[str, float]]) -> Iterator[str]:
    """The dearest files first, a line each, of the seconds of tests by their ids."""
    files = Counter[str]()
    for nodeid, seconds in reports:
        files[nodeid.partition("::")[0]] += seconds
    if files:
        yield f"processor seconds: {files.total():.0f}, of which"
    for file, seconds in files.most_common(SHOWN):
        yield f"{seconds:7.1f} {file}"
