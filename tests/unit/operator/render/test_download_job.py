"""The Job of a download: what it runs, what it mounts, where."""

from typing import Any

import pytest

from graphpod_operator.intent.asked_downloads import downloads
from graphpod_operator.plan.downloads import Weights
from tests.unit.operator.objects import IMAGE, planned

MODEL = {"uri": "hf://org/name@main", "cache": {"claim": "shared"}}


def job(model: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    weights = planned(model=model or MODEL, **spec).weights
    assert isinstance(weights, Weights)
    (one,) = weights.downloads
    return one.job.body


def container(made: dict[str, Any]) -> dict[str, Any]:
    (only,) = made["spec"]["template"]["spec"]["containers"]
    return dict(only)


def test_it_runs_the_fetcher_of_the_services_image_on_the_whole_claim() -> None:
    made = job()
    (download,) = downloads("demo", {"model": MODEL})
    only = container(made)
    assert only["image"] == IMAGE
    assert only["command"] == [
        *("graphpod-fetch", "hf://org/name@main", "--root", "/models", "--folder", download.folder, "--port", "8001")
    ]
    assert {"name": "models", "mountPath": "/models"} in only["volumeMounts"]
    pod = made["spec"]["template"]["spec"]
    assert {"name": "models", "persistentVolumeClaim": {"claimName": "shared"}} in pod["volumes"]
    assert pod["automountServiceAccountToken"] is False
    assert "ownerReferences" not in made["metadata"], "it must outlive the first of its services"


def test_it_is_not_tried_again_where_another_try_would_fail_alike() -> None:
    spec = job()["spec"]
    fails, ignored = spec["podFailurePolicy"]["rules"]
    assert (fails["action"], fails["onExitCodes"]["values"]) == ("FailJob", [2, 65])
    assert ignored["action"] == "Ignore", "an eviction is no failure"
    assert spec["backoffLimit"] == 6


def test_the_secret_is_mounted_in_the_job_alone() -> None:
    secret = {"name": "credentials", "secret": {"secretName": "token"}}
    model = {**MODEL, "secretRef": {"name": "token"}}
    assert secret in job(model)["spec"]["template"]["spec"]["volumes"]
    wanted = planned(model=model)
    assert "token" not in str([child.body for child in wanted.children])


def test_a_checksum_and_a_size_are_passed_on() -> None:
    archive = job({"uri": "https://host/model.tar.gz", "sha256": "a" * 64, "cache": {"claim": "c"}})
    assert container(archive)["command"][-2:] == ["--sha256", "a" * 64]
    sized = container(job({"uri": "s3://b/k", "cache": {"size": "1Gi"}}))["command"]
    assert sized[-2:] == ["--size", str(2**30)]
    assert "--size" not in container(job())["command"], "a claim of the user's is not ours to clear"


@pytest.mark.parametrize(
    ("name", "passed"),
    [
        *(("HF_ENDPOINT", True), ("AWS_REGION", True), ("HTTPS_PROXY", True), ("HOSTNAME", False)),
        *((name, False) for name in ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")),
        *((name, False) for name in ("AWS_ENDPOINT_URL_STS", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")),
        *((name, False) for name in ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_FEDERATED_TOKEN_FILE")),
    ],
)
def test_endpoints_and_proxies_of_the_pod_template_reach_the_job(name: str, passed: bool) -> None:
    env = container(job(podTemplate={"env": [{"name": name, "value": "x"}]}))["env"]
    assert ({"name": name, "value": "x"} in env) == passed


def test_no_variable_brings_what_is_a_secrets() -> None:
    """Its value would be in the name of a host, or in a message."""
    source = {"secretKeyRef": {"name": "database", "key": "password"}}
    env = container(job(podTemplate={"env": [{"name": "HF_ENDPOINT", "valueFrom": source}]}))["env"]
    assert [one["name"] for one in env] == ["HOME"]


def test_it_runs_on_nodes_of_the_services_pods() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    placement = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
    }
    pod = job(placement=placement)["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert [one["key"] for one in pod["tolerations"]] == ["gpu"]
    assert set(pod["affinity"]) == {"nodeAffinity"}
    assert "affinity" not in job()["spec"]["template"]["spec"], "it need not stay away from replicas"
