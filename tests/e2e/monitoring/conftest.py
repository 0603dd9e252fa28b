"""The programs that watch, built when they are not there."""

import pytest

from testbed.binaries.golang import MONITORING, build


@pytest.fixture(scope="session")
def programs() -> None:
    """Prometheus, Alertmanager, kube-state-metrics and the Prometheus operator's generator."""
    build([*(tool.name for tool in MONITORING), "helm4"])
