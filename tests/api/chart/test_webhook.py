"""The webhook's certificate: the same at every rendering, whoever makes it."""

import json
from pathlib import Path

import pytest

from tests.api.chart.release import Release
from tests.api.chart.rendered import NAMESPACE, container, objects, one, render

ON = ("webhook.enabled=true", "crds.enabled=false")
GIVEN = (*ON, "webhook.certificate=Secret", "webhook.secret.name=mine", "webhook.secret.caBundle=Q0E=")
MANAGED = (*ON, "webhook.certificate=CertManager")


def test_it_is_off_and_where_it_is_on_ignores_its_own_absence(helm: Path) -> None:
    assert not any("webhook" in found["metadata"]["name"] for found in objects(render(helm).stdout))
    (webhook,) = one(helm, "ValidatingWebhookConfiguration", *GIVEN)["webhooks"]
    assert webhook["failurePolicy"] == "Ignore"
    assert "--webhook-certificates=/etc/graphpod/webhook" in container(helm, *GIVEN)["args"]


@pytest.mark.parametrize("settings", [GIVEN, MANAGED], ids=["Secret", "CertManager"])
def test_two_renderings_without_a_cluster_are_the_same(helm: Path, settings: tuple[str, ...]) -> None:
    """As Argo CD does it, which applies whatever differs."""
    first, second = (render.__wrapped__(helm, *settings) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert "BEGIN" not in first.stdout
    assert not [found for found in objects(first.stdout) if found["kind"] == "Secret"]


def test_helm_makes_no_certificate_without_a_cluster_and_says_what_does(helm: Path) -> None:
    done = render(helm, *ON)
    assert done.returncode != 0
    assert "webhook.certificate=CertManager" in done.stderr
    assert "webhook.secret.caBundle" in done.stderr


@pytest.mark.parametrize("lacking", ["name", "caBundle"])
def test_a_secret_of_ones_own_is_named_with_its_authority(helm: Path, lacking: str) -> None:
    done = render(helm, *GIVEN, f"webhook.secret.{lacking}=")
    assert done.returncode != 0
    assert f"webhook.secret.{lacking}" in done.stderr
    volumes = one(helm, "Deployment", *GIVEN)["spec"]["template"]["spec"]["volumes"]
    assert {"name": "webhook", "secret": {"secretName": "mine"}} in volumes
    (webhook,) = one(helm, "ValidatingWebhookConfiguration", *GIVEN)["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == "Q0E="


def test_a_certificate_of_cert_manager_is_named_to_its_injector(helm: Path) -> None:
    found = {item["kind"]: item for item in objects(render(helm, *MANAGED).stdout)}
    configuration = found["ValidatingWebhookConfiguration"]
    named = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert named == f"{NAMESPACE}/{found['Certificate']['metadata']['name']}"
    assert "caBundle" not in configuration["webhooks"][0]["clientConfig"]


def test_it_asks_about_the_operators_namespaces_only(helm: Path) -> None:
    (webhook,) = one(helm, "ValidatingWebhookConfiguration", *GIVEN, "watchNamespaces={a,b}")["webhooks"]
    assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == ["a", "b"]


def installed(release: Release, kind: str, name: str) -> dict:
    found: dict = json.loads(release.cluster.kubectl("get", kind, name, "-n", release.namespace, "-o", "json"))
    return found


def test_what_helm_made_is_trusted_and_kept_by_an_upgrade(release: Release) -> None:
    release.install("webhook.enabled=true")
    made = installed(release, "secret", "graphpod-operator-webhook")["data"]
    webhook = f"graphpod-warnings.{release.namespace}"
    (before,) = installed(release, "validatingwebhookconfiguration", webhook)["webhooks"]
    assert before["clientConfig"]["caBundle"] == made["ca.crt"]
    release.install("webhook.enabled=true", "resources.limits.memory=300Mi")
    assert installed(release, "secret", "graphpod-operator-webhook")["data"] == made
    (after,) = installed(release, "validatingwebhookconfiguration", webhook)["webhooks"]
    assert after["clientConfig"] == before["clientConfig"]
