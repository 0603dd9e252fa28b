"""The admission webhook as its user sees it: kubectl prints the decisions, and nothing depends on it."""

import base64
import json
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from graphpod_operator.handlers.admission_server import PATH
from stubs.certificate import make
from testbed import Cluster
from testbed.host.network import Addresses
from tests.api.operator.process import Operator, grant
from tests.places import Place, service
from tests.ports import free_port


def host_of(cluster: Cluster) -> str:
    """The host's address as the API server sees it."""
    return Addresses(int((urlsplit(cluster.address).hostname or "").split(".")[2])).host


def configuration(url: str, authority: bytes) -> dict[str, Any]:
    webhook = {
        "name": "warnings.graphpod.dev",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
        "rules": [
            {
                "apiGroups": ["graphpod.dev"],
                "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["inferenceservices"],
            }
        ],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 10,  # an operator on a busy machine may answer late
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "graphpod-warnings"},
        "webhooks": [webhook],
    }


@pytest.fixture(scope="module")
def warner(crd_cluster: Cluster, drafts: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator for one namespace in which nothing happens, with its webhook configured for all."""
    folder, port = tmp_path_factory.mktemp("webhook"), free_port()
    certificate = make([f"IP:{host_of(crd_cluster)}"])
    (folder / "tls.crt").write_bytes(certificate.certificate)
    (folder / "tls.key").write_bytes(certificate.key)
    grant(crd_cluster, "user1", drafts.namespace)
    operator = Operator(
        crd_cluster,
        "http://127.0.0.1:1",
        folder / "log",
        user="user1",
        namespaces=(drafts.namespace,),
        arguments=(f"--webhook-certificates={folder}", f"--webhook-port={port}"),
    )
    operator.start()
    manifest = configuration(f"https://{host_of(crd_cluster)}:{port}{PATH}", certificate.certificate)
    crd_cluster.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    yield operator
    crd_cluster.kubectl("delete", "validatingwebhookconfiguration", "graphpod-warnings")
    if operator.process is not None and operator.process.poll() is None:
        assert operator.stop() == 0, operator.tail()


def apply(place: Place, **spec: Any) -> tuple[str, str]:
    """What kubectl says, and what it warns of."""
    kubectl = [place.cluster.binary("kubectl"), "-n", place.namespace, "apply", "-f", "-"]
    told = subprocess.run(
        kubectl, input=json.dumps(service(**spec)), env=place.cluster.environment(), capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    return told.stdout, told.stderr


def test_kubectl_apply_prints_what_explain_would_say(warner: Operator, place: Place, eventually) -> None:
    eventually.evidence.append(warner.tail)
    eventually(lambda: "rule NoCuda" in apply(place, suspend=True)[1] or place.remove())
    said, warned = apply(place, suspend=True, engine={"deterministic": True})
    assert "configured" in said
    assert "Warning: will not run until this is fixed: spec.engine.deterministic: deterministic mode" in warned


def test_an_apply_that_changes_nothing_warns_of_nothing(warner: Operator, place: Place) -> None:
    apply(place, suspend=True)
    assert apply(place, suspend=True)[1] == ""


def test_without_its_operator_the_webhook_holds_nobody_up(warner: Operator, place: Place) -> None:
    warner.stop()
    said, warned = apply(place, suspend=True)
    assert "created" in said
    assert warned == ""
