"""The stubs on the shared cluster, each in a namespace of its own, brought by one call."""

from collections.abc import Callable

import pytest

from testbed import Cluster
from testbed.images import build as images
from tests.places import Place


@pytest.fixture(scope="package")
def stub_cluster(node_cluster: Cluster) -> Cluster:
    """The shared cluster with the stubs' image on its nodes."""
    node_cluster.load(images.build("stubs"))
    return node_cluster


@pytest.fixture
def stub_place(stub_cluster: Cluster, make_place: Callable[..., Place]) -> Place:
    """A fresh `restricted` namespace on it."""
    return make_place(stub_cluster)
