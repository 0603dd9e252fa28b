"""The scrape configuration for a Prometheus without the Prometheus operator selects what our monitors select."""

import re
from typing import Any

import yaml

from graphpod_policy.metrics import MOST_SERIES, Process
from monitoring.rules.row import POD
from tests.unit.house.pages import ROOT
from tests.unit.operator.objects import planned

TEXT = (ROOT / "charts/graphpod/files/scrape.yaml").read_text()
JOBS = {job["job_name"]: job for job in yaml.safe_load(TEXT)["scrape_configs"]}
TEMPLATES = ROOT / "charts/graphpod/templates"


def child(kind: str) -> dict[str, Any]:
    (found,) = [one.body for one in planned(monitoring={"enabled": True}).children if one.resource.kind == kind]
    return found


def label(job: dict[str, Any]) -> dict[str, str]:
    """The labels by which a job selects pods."""
    (discovery,) = job["kubernetes_sd_configs"]
    (selector,) = discovery["selectors"]
    assert (discovery["role"], selector["role"]) == ("pod", "pod")
    return dict(pair.split("=") for pair in selector["label"].split(","))


def port(job: dict[str, Any]) -> str:
    (found,) = [
        rule
        for rule in job["relabel_configs"]
        if rule["source_labels"] == ["__meta_kubernetes_pod_container_port_name"]
    ]
    assert found["action"] == "keep"
    return str(found["regex"])


def added(job: dict[str, Any]) -> dict[str, str]:
    """Where each label that the job adds comes from."""
    return {rule["target_label"]: rule["source_labels"][0] for rule in job["relabel_configs"] if "target_label" in rule}


def test_the_pods_of_a_service_are_those_of_its_pod_monitor() -> None:
    job, monitor = JOBS["graphpod-engine"], child("PodMonitor")["spec"]
    template = child("Deployment")["spec"]["template"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert label(job).items() <= template["metadata"]["labels"].items()
    assert port(job) == endpoint["port"]
    assert job["sample_limit"] == monitor["sampleLimit"] > 2 * MOST_SERIES[Process.Engine]
    assert port(job) in [one["name"] for one in template["spec"]["containers"][0]["ports"]]
    for relabeling in endpoint["relabelings"]:
        assert added(job)[relabeling["targetLabel"]] == relabeling["sourceLabels"][0]


def test_the_series_of_pods_carry_the_labels_that_the_rules_group_by() -> None:
    assert set(POD) <= added(JOBS["graphpod-engine"]).keys()
    assert {"namespace", "pod"} <= added(JOBS["graphpod-operator"]).keys()


def test_the_replicas_of_the_operator_are_those_of_the_service_monitor() -> None:
    job = JOBS["graphpod-operator"]
    names = (TEMPLATES / "_names.tpl").read_text()
    assert all(f"{key}: {value}" in names for key, value in label(job).items())
    ports = (TEMPLATES / "deployment.yaml").read_text()
    assert f"- name: {port(job)}\n              containerPort: 8080" in ports
    assert job["honor_labels"] is bool(re.search("honorLabels: true", (TEMPLATES / "servicemonitor.yaml").read_text()))
