"""The cluster of this level, down again when the next level begins."""

from collections.abc import Iterator

import pytest

from testbed import Cluster
from tests.clusters import own_cluster


@pytest.fixture(scope="package")
def api_cluster() -> Iterator[Cluster]:
    """A real etcd, kube-apiserver and kube-controller-manager; started by the first test that asks."""
    with own_cluster("test-api", "api") as cluster:
        yield cluster
