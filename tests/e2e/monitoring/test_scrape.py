"""A Prometheus that is configured only by our PodMonitor, ServiceMonitor and PrometheusRule scrapes and evaluates."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitoring.__main__ import ROOT
from monitoring.rules import ALERTS, RECORDINGS
from tests.e2e.monitoring.stack import Stack, stack
from tests.monitoring import selected
from tests.monitoring.kubelet import Part
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.scaled import SCRAPE_SECONDS
from tests.places import Place

pytestmark = pytest.mark.slow
MONITORED = {"monitoring": {"enabled": True}}
LIES = b"<html>All is well.</html>\n"
HUGE = b"".join(b'graphpod_requests_total{finish_reason="%d"} 1\n' % number for number in range(100_000))
SPOILED = {"lies": LIES, "huge": HUGE, "hangs": b""}
"""What `/metrics` of a service's pod answers."""
STRANGE = {"monitoring": {"enabled": True, "labels": {"release": "another"}}}


@pytest.fixture(scope="module")
def watched(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two services that a Prometheus selects, and one whose labels it does not; those of SPOILED come later."""
    parts = {name: Part() for name in ("one", "two", "strange")}
    parts |= {name: Part(spoiled=answer) for name, answer in SPOILED.items()}
    with stack(tmp_path_factory.mktemp("stack"), parts) as made:
        place = made.place("team")
        place.apply("one", **MONITORED)
        place.apply("two", **MONITORED)
        place.apply("strange", **STRANGE)
        for name in ("one", "two", "strange"):
            made.eventually(place.reached("Ready", "True", "Ready", name), timeout=120)
        yield made


def test_only_the_objects_with_its_labels_are_selected_and_none_is_rejected(watched: Stack) -> None:
    found = watched.eventually(lambda: (now := watched.select()).pod_monitors == ("team/one", "team/two") and now)
    assert found.service_monitors == ("graphpod-system/graphpod-operator", "monitoring/kube-state-metrics")
    assert found.rules == ("graphpod-system/graphpod-operator",)
    assert found.rejected == ()


def test_every_target_of_the_monitors_is_found_and_answers(watched: Stack) -> None:
    def answers() -> bool:
        found = watched.targets()
        jobs = sorted(name.partition(" ")[0] for name in found)
        assert jobs == ["graphpod-operator", "kube-state-metrics", "team/one", "team/two"], found
        return set(found.values()) == {"up"}

    watched.eventually(answers, timeout=60)


def test_a_service_knows_whether_a_prometheus_scrapes_it(watched: Stack) -> None:
    place = Place(watched.cluster, "team")
    watched.eventually(place.reached("MonitorReady", "True", "Scraped", "one"), timeout=60)
    watched.eventually(place.reached("MonitorReady", "True", "Scraped", "two"), timeout=60)
    said = watched.eventually(place.reached("MonitorReady", "False", "NotScraped", "strange"), timeout=90)
    assert "spec.monitoring.labels" in said

    place.apply("strange", **MONITORED)
    watched.eventually(lambda: "team/strange" in watched.select().pod_monitors)
    watched.eventually(place.reached("MonitorReady", "True", "Scraped", "strange"), timeout=60)


def test_series_carry_the_labels_that_the_rules_group_by(watched: Stack) -> None:
    by = "count by (namespace, inferenceservice, pod) (graphpod_build_info)"
    found = watched.eventually(lambda: watched.prometheus.query(by))
    assert {(one["namespace"], one["inferenceservice"]) for one in found} >= {("team", "one"), ("team", "two")}
    assert all(one["pod"].startswith(one["inferenceservice"]) for one in found)
    (operator,) = watched.prometheus.query("count by (namespace, pod) (graphpod_operator_build_info)")
    assert operator == {"namespace": "graphpod-system", "pod": "graphpod-operator-1"}


def test_a_plain_prometheus_with_the_documented_jobs_scrapes_the_same_pods(watched: Stack, tmp_path: Path) -> None:
    watched.select()
    documented = (ROOT / "charts/graphpod/files/scrape.yaml").read_text()
    config = selected.plain(watched.cluster, watched.folder, documented, SCRAPE_SECONDS)
    (tmp_path / "prometheus.yaml").write_text(config)
    engines = "count by (namespace, inferenceservice, pod, container) (graphpod_build_info)"
    operators = "count by (namespace, pod, container) (graphpod_operator_build_info)"

    def named(prometheus: Prometheus, expr: str) -> set[tuple[tuple[str, str], ...]]:
        return {tuple(sorted(one.items())) for one in prometheus.query(expr)}

    with selected.prometheus(tmp_path) as plain:
        found = watched.eventually(lambda: len(seen := named(plain, engines)) == 3 and seen, timeout=60)
        assert {dict(one)["inferenceservice"] for one in found} == {"one", "two", "strange"}
        watched.eventually(lambda: found >= named(watched.prometheus, engines) != set())
        watched.eventually(lambda: named(plain, operators) == named(watched.prometheus, operators) != set())
        assert {one["health"] for one in plain.get("targets")["activeTargets"]} == {"up"}


def test_series_of_pods_join_those_of_kube_state_metrics(watched: Stack) -> None:
    joined = "graphpod_build_info * on (namespace, pod) group_left () kube_pod_info"
    found = watched.eventually(lambda: watched.prometheus.query(joined), timeout=60)
    assert {one["inferenceservice"] for one in found} >= {"one", "two"}


def test_kube_state_metrics_exports_services_as_the_documented_file_says(watched: Stack) -> None:
    of_one = '{namespace="team",inferenceservice="one"}'

    def exported(name: str, value: int = 1) -> list[dict[str, str]]:
        return watched.prometheus.query(f"kube_inferenceservice_{name}{of_one} == {value}")

    (info,) = watched.eventually(lambda: exported("info"), timeout=60)
    assert info["model"].startswith("pvc://")
    assert (info["prefill"], info["decode"]) == ("Breakable", "Full")
    watched.eventually(lambda: [one["phase"] for one in exported("status_phase")] == ["Ready"], timeout=60)
    assert {one["phase"] for one in exported("status_phase", 0)} >= {"Refused", "Stalled", "Degraded"}
    assert "Ready" in {one["condition"] for one in exported("status_condition")}
    assert exported("status_replicas")
    assert exported("status_ready_replicas")


def test_the_objective_of_a_service_is_recorded(watched: Stack) -> None:
    Place(watched.cluster, "team").apply("one", **MONITORED, slo={"ttft": "300ms"})
    found = watched.eventually(lambda: watched.prometheus.query("service:graphpod_objective:seconds"), timeout=60)
    (one,) = found
    assert (one["namespace"], one["inferenceservice"], one["objective"], one["le"]) == ("team", "one", "ttft", "0.5")


def test_every_rule_of_the_chart_is_evaluated(watched: Stack) -> None:
    def evaluated() -> bool:
        groups = watched.prometheus.get("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        names = {rule["name"] for rule in rules}
        assert names == {row.name for row in (*ALERTS, *RECORDINGS)}
        return {rule["health"] for rule in rules} == {"ok"}

    watched.eventually(evaluated, timeout=60)


def test_a_pod_whose_metrics_lie_hang_or_are_huge_is_down_alone(watched: Stack) -> None:
    place = Place(watched.cluster, "team")
    for name in SPOILED:
        place.apply(name, **MONITORED)
    for name in SPOILED:
        watched.eventually(place.reached("Ready", "True", "Ready", name), timeout=120)
    watched.eventually(lambda: len(watched.select().pod_monitors) == 3 + len(SPOILED))

    def errors() -> dict[str, str]:
        found = watched.prometheus.get("targets")["activeTargets"]
        said = {
            one["labels"]["job"].removeprefix("team/"): one["lastError"] for one in found if one["health"] == "down"
        }
        assert said.keys() == SPOILED.keys()
        return said

    said = watched.eventually(errors, timeout=60)
    assert "deadline exceeded" in said["hangs"]
    assert "sample limit exceeded" in said["huge"]
    assert "expected" in said["lies"]
    assert watched.prometheus.value('sum(up{job=~"team/(one|two|strange)"})') == 3
    of_spoiled = 'count({__name__=~"graphpod_.*",inferenceservice=~"lies|huge|hangs"})'
    assert watched.prometheus.value(of_spoiled) == 0
    assert watched.scraped(), "the operator answers"
    for name in SPOILED:  # no scrape was answered, and the service serves
        watched.eventually(place.reached("MonitorReady", "False", "NotScraped", name), timeout=90)
        assert place.condition("Ready", name)[:2] == ("True", "Ready")
        place.kubectl("delete", "gisvc", name)
