"""The cluster of this level, down again when the next level begins."""

from collections.abc import Iterator

import pytest

from testbed import Cluster
from tests.clusters import own_cluster
from tests.workers import worker


@pytest.fixture(scope="package")
def api_cluster() -> Iterator[Cluster]:
    """A real etcd, kube-apiserver and kube-controller-manager; started by the first test that asks. Each worker of a
    run has its own, because this level is several units."""
    with own_cluster(f"test-api{worker()}", "api") as cluster:
        yield cluster
