"""Clusters for tests: each name belongs to one test run of the machine at a time, and starts from nothing."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.cluster import Cluster
from testbed.errors import TestbedError
from testbed.host.network import Family
from testbed.level import Level
from testbed.paths import state_root

SUFFIX = "GRAPHPOD_TEST_SUFFIX"
"""Environment variable: a word added to every name, so that a second run has clusters of its own and need not wait."""
OTHER_RUN_LIMIT = 1800.0  # s; a whole run of the tests is shorter


@contextmanager
def own_cluster(
    name: str, level: Level | str, nodes: int | None = None, family: Family = Family.IPV4
) -> Iterator[Cluster]:
    """A fresh cluster of this name, held by this test run alone, and taken down at the end."""
    cluster = Cluster(cluster_name(name), level, nodes, family=family)
    with _alone(cluster.name):
        cluster.down()  # what an aborted run left is no state to test on
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


def cluster_name(name: str) -> str:
    """`name`, with the word from the environment if there is one."""
    return "-".join(filter(None, (name, os.environ.get(SUFFIX))))


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Waits for another run that holds the name; the kernel frees the lock with its process."""
    place = state_root() / "locks" / f"{name}.tests"  # beside the testbeds: two runs with two caches meet here as well
    place.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + OTHER_RUN_LIMIT
    with place.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TestbedError(
                        f"another test run has held {name} for {OTHER_RUN_LIMIT:.0f} s: wait for it, end it,"
                        f" or set {SUFFIX}=b for clusters of your own"
                    ) from None
                time.sleep(0.5)
        yield
