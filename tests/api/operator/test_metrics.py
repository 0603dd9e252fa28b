"""Every metric of the operator moves in one run, and no series has a label value that is not of its closed set."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from graphpod_operator.telemetry.metrics import CONTROLLER, METHODS, SKIPPED, UNLISTED, ZEROS
from graphpod_policy.metrics import Kind, Process, of
from stubs.faults.fault import Answer, Freeze, Turn, WatchError
from stubs.kubecall import Verb, Which
from stubs.proxy import Proxy
from tests.api.operator.pods import AdminPorts, report, running, set_status
from tests.api.operator.process import USER, Operator
from tests.api.operator.test_bounds import DEEP, FIELDS, create, nested, written
from tests.eventually import Eventually
from tests.places import Place, service

ROWS = {row.name: row for row in of(Process.Operator)}
CONSTANT = {"graphpod_operator_build_info": 1.0, "controller_runtime_max_concurrent_reconciles": 1.0}
ELSEWHERE = {UNLISTED}
"""Moves only where a kind cannot be listed: test_optional.py has that."""
OF_ANY_PROCESS = ("process_", "python_")


@dataclass
class Watched:
    """An operator's metrics over a run: of each the first reading and which have been another since."""

    operator: Operator
    first: dict[str, float] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)

    def families(self) -> list[Family]:
        status, said = self.operator.ask("/metrics")
        families = text_string_to_metric_families(said) if status == 200 else ()
        return [family for family in families if not family.name.startswith(OF_ANY_PROCESS)]

    def look(self) -> bool:
        """True once there is something to read."""
        for family in self.families():
            name = family.name + ("_total" if family.type == "counter" else "")
            counted = f"{name}_count" if family.type == "histogram" else name
            now = sum(sample.value for sample in family.samples if sample.name == counted)
            if now != self.first.setdefault(name, now):
                self.moved.add(name)
        return bool(self.first)

    def names_nobody(self) -> bool:
        skipped = next(family for family in self.families() if family.name == SKIPPED)
        assert skipped.samples == [], skipped.samples
        return True

    def has_moved(self, *names: str) -> bool:
        self.look()
        assert self.moved >= set(names), f"not yet: {set(names) - self.moved}"
        return True


@pytest.fixture
def watched(proxy: Proxy, admin_ports: AdminPorts, tmp_path: Path, crd_cluster, eventually) -> Iterator[Watched]:
    """An operator with one worker, told of by its metrics since before it leads."""
    kubeconfig = proxy.kubeconfig(crd_cluster.token_kubeconfig(USER), tmp_path / "kubeconfig")
    arguments = ("--workers=1",)
    operator = Operator(crd_cluster, admin_ports.url, tmp_path / "log", kubeconfig=kubeconfig, arguments=arguments)
    eventually.logs.append(operator.log)
    watched = Watched(operator)
    try:
        with proxy.during(Freeze(), Which(resource="leases")):
            operator.start()
            eventually(watched.look)
        yield watched
    finally:
        proxy.board.clear()
        operator.stop()


def test_every_metric_moves_in_a_run(
    watched: Watched, proxy: Proxy, admin_ports: AdminPorts, place: Place, eventually: Eventually
) -> None:
    eventually(lambda: watched.has_moved("leader_election_master_status"))

    writes = Which(frozenset({Verb.PATCH}), namespace=place.namespace)
    proxy.add(Answer(409), writes, Turn(times=1))
    proxy.add(Answer(500), writes, Turn(first=2, times=1))
    with proxy.during(Freeze(), writes) as held:
        place.apply()
        held.reached()
        place.apply("second", slo={"ttft": "2s"})  # and the only worker is busy
        busy = ("controller_runtime_active_workers", "workqueue_depth", "workqueue_unfinished_work_seconds")
        eventually(lambda: watched.has_moved(*busy, "workqueue_longest_running_processor_seconds"))
    eventually(lambda: len(place.pods()) == 1 and len(place.pods("second")) == 1)

    (pod,) = place.pods()
    set_status(place.cluster, pod, running(ready=False))  # its admin port says nothing of it yet
    admin_ports.tell(pod, report(pod))
    (other,) = place.pods("second")
    weaker = report(other)
    weaker["graph"]["decode"] |= {"effective": "Disabled", "sizes": {}}
    weaker["sleep"]["state"] = "Asleep"  # and no annotation wants that
    admin_ports.tell(other, weaker)
    admin_ports.obey(other)
    set_status(place.cluster, other, running(ready=True))
    place.scale(3)
    eventually(lambda: place.get("deployment", "demo")["spec"]["replicas"] == 1)
    proxy.add(WatchError(500), Which(frozenset({Verb.WATCH})), Turn(times=1))
    place.label("gisvc", "demo", {"seen": "yes"})
    create(place, written(service("deep", **FIELDS["volume"](None)), nested(DEEP)))

    eventually(lambda: watched.has_moved(*(ROWS.keys() - CONSTANT.keys() - ELSEWHERE)), timeout=60)
    assert {name: watched.first[name] for name in CONSTANT} == CONSTANT
    assert watched.first.keys() == ROWS.keys()
    place.remove("deep")  # one metric names objects, 64 at most, as long as they are there
    eventually(lambda: watched.names_nobody())
    for family in watched.families():
        for sample in family.samples:
            assert_closed(sample.name, sample.labels)


def assert_closed(name: str, labels: dict[str, str]) -> None:
    """Names of services, pods or namespaces are in no label: the number of series does not grow with the cluster."""
    row = next(row for row in ROWS.values() if name.startswith(row.name))
    methods = set(METHODS)
    known = {"controller": {CONTROLLER}, "name": {CONTROLLER, "graphpod-operator"}, "method": methods, "verb": methods}
    for label, value in labels.items():
        if label in known:
            assert value in known[label], (name, labels)
        if row.name in ZEROS and row.kind is Kind.Counter:
            assert value in {series[label] for series in ZEROS[row.name]}, (name, labels)
