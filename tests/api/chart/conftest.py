"""Helm 3 and helm 4 on one cluster, and releases that are gone after their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import Cluster
from testbed.binaries.golang import binary, build
from tests.api.chart.release import DEPLOYMENT, Release
from tests.audit import Audit
from tests.clusters import own_cluster
from tests.crd import drop_crd

ONE_HELM = [pytest.param("helm3", marks=pytest.mark.slow), "helm4"]
"""Of tests about what the chart says, or what Kubernetes does with it, whichever helm read it. `make samples` has both;
what the helms themselves do, and the chart with its usual values, both do in `make test`."""


@pytest.fixture(scope="package", params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> Path:
    build([request.param])
    return binary(request.param)


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Of its own: other tests bring the CRD by themselves, and helm refuses to adopt it. What a helm brings is gone
    when the other begins.
    """
    with own_cluster("test-helm", "api") as cluster:
        yield cluster


@pytest.fixture
def audit(cluster: Cluster) -> Audit:
    return Audit(cluster.audit_log)


@pytest.fixture
def make_release(helm: Path, cluster: Cluster) -> Iterator[Callable[..., Release]]:
    """`make_release(namespace=…)`; nothing is installed by it."""
    made: list[Release] = []

    def make(name: str = "graphpod", namespace: str = "graphpod-system") -> Release:
        made.append(Release(helm, cluster, name, namespace))
        return made[-1]

    yield make
    for release in made:
        release.uninstall()
        cluster.delete(f"/apis/coordination.k8s.io/v1/namespaces/{release.namespace}/leases/{DEPLOYMENT}")
    drop_crd(cluster)


@pytest.fixture
def release(make_release: Callable[..., Release]) -> Release:
    return make_release()
