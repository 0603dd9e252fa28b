"""Prometheus and its tool, built when they are not there; an engine and an operator that it scrapes."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.weights import model_folder
from monitoring.boards.asking import Span
from stubs.collector import Collector
from testbed.binaries.golang import binary, build
from tests.api.operator.pods import AdminPorts, report, running, set_status
from tests.api.operator.process import Operator, grant
from tests.clusters import own_cluster
from tests.crd import serve_crd
from tests.eventually import Eventually
from tests.monitoring import dcgm, prometheus
from tests.monitoring import engine as engines
from tests.monitoring.engine import Engine, Load
from tests.monitoring.prometheus import SCRAPE_SECONDS, Prometheus, Target
from tests.places import Place

RATE_SECONDS = 4 * SCRAPE_SECONDS
"""The scrape interval that the dashboards believe in: a scrape that comes late leaves no gap."""
LABELS = {"namespace": "demo", "inferenceservice": "smollm2", "pod": "smollm2-1"}
OF_OPERATOR = {"namespace": "graphpod-system", "pod": "graphpod-operator-1"}


@dataclass(frozen=True)
class Watched:
    """A Prometheus that has seen an engine under load and an operator with two services; `span` is that time. `quiet`
    is the time before: all are scraped, and nobody has sent a request.
    """

    prometheus: Prometheus
    engine: Engine
    operator: Operator
    span: Span
    quiet: Span
    load: Load


@pytest.fixture(scope="session")
def promtool() -> Path:
    build(["promtool"])
    return binary("promtool")


@pytest.fixture(scope="session")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator on an API server of its own, with one service that is Ready: its pod has no kubelet."""
    with own_cluster("test-monitoring", "api") as cluster, AdminPorts().serving() as ports:
        serve_crd(cluster)
        grant(cluster)
        made = Operator(cluster, ports.url, tmp_path_factory.mktemp("operator") / "log")
        made.start()
        eventually = Eventually(lambda: [cluster], logs=[made.log])
        eventually(made.idle)
        place = Place(cluster, "demo")
        place.create()
        place.apply()
        eventually(place.reached("WorkloadAvailable", "False", "Starting"))
        (pod,) = eventually(place.pods)  # the condition may be there before the ReplicaSet's pod
        ports.tell(pod, report(pod))
        set_status(cluster, pod, running(ready=True))
        eventually(place.reached("Ready", "True", "Ready"))
        yield made
        assert made.stop() == 0, made.tail()


@pytest.fixture(scope="session")
def watched(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    build(["prometheus"])
    folder = tmp_path_factory.mktemp("prometheus")
    folders = tmp_path_factory.mktemp("engine")
    with (
        Collector() as collector,
        engines.serving(model_folder(), folders, collector.url) as engine,
        dcgm.serving() as gpu,
    ):
        targets = (
            Target("demo/smollm2", engine.admin, LABELS),
            Target("graphpod-operator", f"127.0.0.1:{operator.port}", OF_OPERATOR),
            Target("dcgm-exporter", gpu.address, {}),
        )
        with prometheus.running(binary("prometheus"), folder, targets) as running:
            time.sleep(RATE_SECONDS)  # a rate needs two scrapes
            began = time.time()
            Place(operator.cluster, "demo").apply("another", slo={"ttft": "2s", "itl": "30ms"})
            load = engines.load(f"http://{engine.http}")
            eventually = Eventually(logs=[operator.log])
            eventually(lambda: running.value("sum(graphpod_requests_total)") == load.ended)
            eventually(lambda: running.value("sum(graphpod_operator_inferenceservices)") == 2)
            engines.slept(engine)
            eventually(lambda: running.value(engines.WOKEN) == 1)
            now = time.time()
            # Whole seconds, as steps are: the last point of a line is at the end, where the last scrape counts.
            span = Span(now, math.ceil(now - began), RATE_SECONDS)
            yield Watched(running, engine, operator, span, Span(began, RATE_SECONDS, RATE_SECONDS), load)
