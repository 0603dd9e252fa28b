"""One operator, one copy of the weights, on two nodes, for all tests that run the real engine."""

from collections.abc import Iterator

import pytest
import yaml

from demo.chart import install, wait_operator
from demo.ground import Image
from demo.images import layouts, provide
from demo.local import Testbed
from demo.objects import read
from demo.service import CLAIM, HERE, NAMESPACE, apply, fill_claim
from testbed import Cluster
from testbed.nodes.kept_layers import keep
from tests.clusters import own_cluster
from tests.eventually import Eventually
from tests.places import Place

SHARED = {"storageClassName": "testbed-shared", "accessModes": ["ReadWriteMany"]}


@pytest.fixture(scope="package")
def node_cluster() -> Iterator[Cluster]:
    """A cluster with two real nodes, which begin with the large layers of our images; started by the first test that
    asks.
    """
    keep(layouts(print).values())
    with own_cluster("test-node", "node", nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def loaded(node_cluster: Cluster) -> dict[str, Image]:
    """Our images, built and on both nodes."""
    return provide(node_cluster, print)


@pytest.fixture(scope="module")
def installed(node_cluster: Cluster, loaded: dict[str, Image]) -> Cluster:
    """The chart by helm 4, and the weights in a claim that pods on both nodes may read.

    What is there stays as it is; what a file of tests took away comes back before the next.
    """
    install(Testbed(node_cluster))
    wait_operator(node_cluster)
    apply(node_cluster, HERE / "namespace.yaml")
    there = read(node_cluster, "pvc", CLAIM, NAMESPACE)
    if there and there["spec"].get("storageClassName") != SHARED["storageClassName"]:
        node_cluster.kubectl("delete", "pvc", CLAIM, "-n", NAMESPACE, timeout=60)
        there = None
    if not there:
        claim = yaml.safe_load((HERE / "claim.yaml").read_text())
        claim["spec"] |= SHARED
        node_cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(claim))
    fill_claim(node_cluster, loaded["demo-weights"], print)
    return node_cluster


@pytest.fixture
def home(installed: Cluster, eventually: Eventually) -> Place:
    """The namespace of the weights, where services that read them live; a test that gives up shows what is there."""
    eventually.places.append((installed, NAMESPACE))
    return Place(installed, NAMESPACE)
