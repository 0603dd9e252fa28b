"""What must never restart the operator (contract 11): time that passes, and an API server that is away."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stubs.proxy import Proxy
from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import USER, Operator
from tests.audit import Audit
from tests.eventually import Eventually
from tests.places import Place
from tests.ports import free_port

pytestmark = pytest.mark.chaos
PROBE_SECONDS = 1.0
LIVENESS = free_port()


@pytest.fixture
def behind(
    proxy: Proxy, running_operator: Operator, admin_ports: AdminPorts, tmp_path: Path, eventually: Eventually
) -> Iterator[Operator]:
    """An operator that reaches its API server through the proxy alone."""
    cluster = running_operator.cluster
    kubeconfig = proxy.kubeconfig(cluster.token_kubeconfig(USER), tmp_path / "kubeconfig")
    arguments = (f"--liveness-port={LIVENESS}",)
    operator = Operator(cluster, admin_ports.url, tmp_path / "log", kubeconfig=kubeconfig, arguments=arguments)
    eventually.logs.append(operator.log)
    operator.start()
    eventually(operator.idle)
    yield operator
    assert operator.stop() == 0


def probed(operator: Operator, seconds: float) -> None:
    """What a kubelet does: it asks again and again whether to restart, and forgives two answers that do not come. The
    chart has it ask kopf's thread; the main loop says the same.
    """
    until, missed = time.monotonic() + seconds, dict.fromkeys((None, LIVENESS), 0)
    while time.monotonic() < until:
        assert operator.process is not None
        assert operator.process.poll() is None, operator.tail()
        for port in missed:
            status, said = operator.ask("/healthz", port)
            missed[port] = 0 if status else missed[port] + 1
            assert status == 200 or 0 < missed[port] < 3, f"{port} {status} {said}\n{operator.tail()}"
        time.sleep(PROBE_SECONDS)


@pytest.mark.parametrize(
    ("quiet", "away"),
    [pytest.param(3, 12, id="short"), pytest.param(1800, 300, id="half an hour", marks=pytest.mark.slow)],
)
def test_neither_quiet_time_nor_an_api_server_that_is_away_restarts_the_operator(
    behind: Operator, proxy: Proxy, place: Place, audit: Audit, eventually: Eventually, quiet: float, away: float
) -> None:
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    eventually(lambda: place.status().get("replicas") == 1)
    eventually(behind.idle)
    mark = audit.mark()
    probed(behind, quiet)
    assert audit.since(mark).by(USER).writes().steady() == (), "nor is anything written"

    proxy.refuse()
    place.drop("service", "demo")
    probed(behind, away)
    assert behind.ask("/readyz")[0] == 503, "it is told, where no restart follows"
    proxy.accept()
    eventually(lambda: "service/demo" in place.names("services"), timeout=60)
    eventually(behind.idle)
    assert behind.ask("/healthz") == (200, "ok\n")
