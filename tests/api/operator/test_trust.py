"""Watches that tell nothing any more: found out by the resync, and a reason to restart; and a namespace that goes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from graphpod_operator.kube.resources import WATCHED
from stubs.faults.fault import Freeze, Turn
from stubs.kubecall import Verb, Which
from stubs.proxy import Proxy
from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import USER, Operator
from tests.eventually import Eventually
from tests.places import Place

pytestmark = pytest.mark.chaos
WATCHES = Which(frozenset({Verb.WATCH}))
SHORT = """
from graphpod_operator.kube import client
from graphpod_operator.handlers import kopf_operator
from graphpod_operator.watch import relist
client.SILENT_SECONDS = 3600.0
relist.EVERY_SECONDS = relist.DOUBT_SECONDS = 3.0
relist.DELIVERY_SECONDS = 1.0
configure = kopf_operator.configure
def without_inactivity_check(chosen):
    configure(chosen)
    chosen.watching.inactivity_timeout = 3600
kopf_operator.configure = without_inactivity_check
"""
"""A resync every 3 s, and streams that say nothing are believed."""


@pytest.fixture
def believing(
    proxy: Proxy, running_operator: Operator, admin_ports: AdminPorts, tmp_path: Path, eventually: Eventually
) -> Iterator[Operator]:
    """An operator that depends on its resync."""
    cluster = running_operator.cluster
    kubeconfig = proxy.kubeconfig(cluster.token_kubeconfig(USER), tmp_path / "kubeconfig")
    operator = Operator(cluster, admin_ports.url, tmp_path / "log", kubeconfig=kubeconfig, before=SHORT)
    eventually.logs.append(operator.log)
    operator.start()
    eventually(operator.idle)
    yield operator
    proxy.board.clear()
    assert operator.stop() == 0


def test_watches_that_freeze_are_found_out_and_the_operator_asks_for_a_restart(
    believing: Operator, proxy: Proxy, place: Place, eventually: Eventually
) -> None:
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    eventually(lambda: proxy.count(WATCHES) >= len(WATCHED))
    proxy.add(Freeze(), WATCHES, Turn(times=len(WATCHED)))

    def sick() -> str | None:
        place.kubectl("annotate", "service", "demo", "--overwrite", f"example.com/looks={proxy.count()}")
        status, said = believing.ask("/healthz")
        return said if status == 503 else None

    assert "the watch cache is stale: " in eventually(sick)


def test_watches_that_live_are_believed(believing: Operator, proxy: Proxy, place: Place, eventually) -> None:
    resyncs = Which(frozenset({Verb.LIST}), resource="pods")
    before = proxy.count(resyncs)
    for number in range(5):
        place.apply(f"s{number}")
        eventually(lambda number=number: proxy.count(resyncs) > before + number)
        assert believing.ask("/healthz") == (200, "ok\n")
    assert believing.metric("graphpod_operator_watch_failures_total") == 0


def test_a_namespace_that_is_deleted_takes_its_services_without_a_word(
    operator: Operator, place: Place, eventually: Eventually
) -> None:
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    errors = operator.metric('controller_runtime_reconcile_errors_total{controller="inferenceservice"}')
    place.delete()
    namespaces = partial(place.cluster.read, "/api/v1/namespaces")
    eventually(lambda: place.namespace not in {one["metadata"]["name"] for one in namespaces()["items"]})
    eventually(operator.idle)
    assert operator.metric('controller_runtime_reconcile_errors_total{controller="inferenceservice"}') == errors
    assert f"{place.namespace}/demo: " not in "".join(
        line for line in operator.log.read_text().splitlines() if '"level": "error"' in line
    )
