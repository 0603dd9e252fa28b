"""One operator, one copy of the weights: installed once, on two nodes, for all tests that run the real engine."""

import pytest
import yaml

from demo.chart import install, wait_operator
from demo.images import provide
from demo.local import Testbed
from demo.service import HERE, NAMESPACE, apply, fill_claim
from testbed import Cluster
from tests.eventually import Eventually
from tests.places import Place

SHARED = {"storageClassName": "testbed-shared", "accessModes": ["ReadWriteMany"]}


@pytest.fixture(scope="session")
def installed(node_cluster: Cluster) -> Cluster:
    """The chart by helm 4, our images on both nodes, and the weights in a claim that pods on both may read."""
    images = provide(node_cluster, print)
    install(Testbed(node_cluster))
    wait_operator(node_cluster)
    apply(node_cluster, HERE / "namespace.yaml")
    claim = yaml.safe_load((HERE / "claim.yaml").read_text())
    claim["spec"] |= SHARED
    node_cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(claim))
    fill_claim(node_cluster, images["demo-weights"], print)
    return node_cluster


@pytest.fixture
def home(installed: Cluster, eventually: Eventually) -> Place:
    """The namespace of the weights, where services that read them live; a test that gives up shows what is there."""
    eventually.places.append((installed, NAMESPACE))
    return Place(installed, NAMESPACE)
