"""What the chart gives Prometheus, when it is asked to."""

import json
from pathlib import Path

import pytest
import yaml

from testbed import Cluster
from testbed.binaries.foreign import Foreign
from tests.api.chart.conftest import ONE_HELM
from tests.api.chart.rendered import CHART, NAMESPACE, container, objects, one, render
from tests.api.operator.process import serve
from tests.crd import drop_crd
from tests.places import Place

pytestmark = pytest.mark.parametrize("helm", ONE_HELM, indirect=True)

RULES = yaml.safe_load((CHART / "files/rules.yaml").read_text())["groups"]
ON = "monitoring.rules.enabled=true"


def test_without_a_setting_nothing_needs_the_kinds_of_the_prometheus_operator(helm: Path) -> None:
    assert "monitoring.coreos.com" not in {
        found["apiVersion"].partition("/")[0] for found in objects(render(helm).stdout)
    }


def test_the_rule_object_holds_the_rules_of_the_file(helm: Path) -> None:
    found = one(helm, "PrometheusRule", ON, "monitoring.rules.labels.release=stack")
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == ("graphpod-operator", NAMESPACE)
    assert found["metadata"]["labels"]["release"] == "stack"
    assert found["spec"]["groups"] == RULES


def test_an_alert_may_be_left_out_and_a_name_that_is_none_is_refused(helm: Path) -> None:
    left = one(helm, "PrometheusRule", ON, "monitoring.rules.disabled={GraphpodDrift}")["spec"]["groups"]
    assert left == [
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert") != "GraphpodDrift"]} for group in RULES
    ]
    done = render(helm, ON, "monitoring.rules.disabled={GraphpodDrifft}")
    assert "there is no alert GraphpodDrifft" in done.stderr


def test_the_page_of_alerts_may_be_elsewhere(helm: Path) -> None:
    found = one(helm, "PrometheusRule", ON, "monitoring.rules.page=https://docs.example/alerts.html")
    urls = [
        rule["annotations"]["runbook_url"]
        for group in found["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert {url.partition("#")[0] for url in urls} == {"https://docs.example/alerts.html"}


def test_the_operator_is_scraped_by_the_port_and_the_labels_of_its_service(helm: Path) -> None:
    settings = ("monitoring.serviceMonitor.enabled=true", "monitoring.serviceMonitor.labels.release=stack")
    found, service = one(helm, "ServiceMonitor", *settings), one(helm, "Service")
    assert found["metadata"]["labels"]["release"] == "stack"
    assert found["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert found["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert found["spec"]["endpoints"] == [
        {"port": service["spec"]["ports"][0]["name"], "path": "/metrics", "honorLabels": True}
    ]
    (endpoint,) = one(helm, "ServiceMonitor", *settings, "monitoring.serviceMonitor.interval=15s")["spec"]["endpoints"]
    assert endpoint["interval"] == "15s"


def test_labels_of_pod_monitors_reach_the_operator_and_its_own_are_refused(helm: Path) -> None:
    args = container(helm, "monitoring.podMonitors.labels.release=stack")["args"]
    (flag,) = [word for word in args if word.startswith("--pod-monitor-labels=")]
    assert json.loads(flag.partition("=")[2]) == {"release": "stack"}
    assert not any("pod-monitor-labels" in word for word in container(helm)["args"])
    refused = render(helm, r"monitoring.podMonitors.labels.app\.kubernetes\.io/name=mine")
    assert "invalid propertyName 'app.kubernetes.io/name'" in refused.stderr


def test_every_dashboard_is_a_config_map_that_the_sidecar_finds(helm: Path) -> None:
    settings = ("monitoring.dashboards.enabled=true", "monitoring.dashboards.annotations.grafana_folder=graphpod")
    maps = [found for found in objects(render(helm, *settings).stdout) if found["kind"] == "ConfigMap"]
    files = {f"graphpod-{path.name}": path.read_text() for path in (CHART / "files/dashboards").glob("*.json")}
    assert len(files) == 6
    assert {name: text for found in maps for name, text in found["data"].items()} == files
    for found in maps:
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert found["metadata"]["annotations"] == {"grafana_folder": "graphpod"}
        assert found["metadata"]["namespace"] == NAMESPACE
    moved = render(helm, "monitoring.dashboards.enabled=true", "monitoring.dashboards.namespace=grafana").stdout
    assert {found["metadata"]["namespace"] for found in objects(moved) if found["kind"] == "ConfigMap"} == {"grafana"}


DASHBOARDS = "monitoring.dashboards.enabled=true,monitoring.dashboards.grafanaOperator.enabled=true"


def test_grafanas_operator_finds_each_dashboard_in_its_config_map(helm: Path) -> None:
    rendered = objects(render(helm, DASHBOARDS).stdout)
    keys = {
        (found["metadata"]["name"], key) for found in rendered if found["kind"] == "ConfigMap" for key in found["data"]
    }
    named = [found["spec"]["configMapRef"] for found in rendered if found["kind"] == "GrafanaDashboard"]
    assert len(named) == 6
    assert {(one["name"], one["key"]) for one in named} == keys


@pytest.mark.parametrize(
    ("foreign", "setting"),
    [
        (Foreign.ServiceMonitor, "monitoring.serviceMonitor.enabled=true,monitoring.serviceMonitor.labels.release=x"),
        (Foreign.PrometheusRule, f"{ON},monitoring.rules.labels.release=x"),
        (Foreign.GrafanaDashboard, DASHBOARDS),
    ],
    ids=lambda value: value.name if isinstance(value, Foreign) else "",
)
def test_the_schema_of_the_kinds_owner_takes_the_objects(
    helm: Path, cluster: Cluster, foreign: Foreign, setting: str
) -> None:
    made = [found for found in objects(render(helm, setting).stdout) if found["kind"] == foreign.name]
    assert made
    for found in made:
        found["metadata"]["namespace"] = "default"
    serve(Place(cluster, "default"), foreign)
    try:
        text = yaml.safe_dump_all(made)
        cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", input=text)
    finally:
        drop_crd(cluster, foreign.crd)
