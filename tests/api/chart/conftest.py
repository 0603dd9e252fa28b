"""Helm 3 and helm 4, a cluster for each, and releases that are gone after their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import Cluster
from testbed.binaries.golang import binary, build
from tests.api.chart.release import Release
from tests.audit import Audit
from tests.clusters import own_cluster
from tests.crd import drop_crd


@pytest.fixture(scope="package", params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> Path:
    build([request.param])
    return binary(request.param)


@pytest.fixture(scope="package")
def cluster(helm: Path) -> Iterator[Cluster]:
    """One of its own for each helm: other tests bring the CRD by themselves, and helm refuses to adopt it."""
    with own_cluster(f"test-{helm.parent.name.partition('-')[0]}", "api") as cluster:
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
    drop_crd(cluster)


@pytest.fixture
def release(make_release: Callable[..., Release]) -> Release:
    return make_release()
