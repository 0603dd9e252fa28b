"""What an installer may add to the operator's objects, and what those have without."""

from pathlib import Path

import pytest
import yaml

from testbed import Cluster
from tests.api.chart.conftest import ONE_HELM
from tests.api.chart.rendered import NAMESPACE, container, objects, one, render

pytestmark = pytest.mark.parametrize("helm", ONE_HELM, indirect=True)

IDS = {"runAsUser", "runAsGroup", "fsGroup"}


def pod(helm: Path, *settings: str) -> dict:
    found: dict = one(helm, "Deployment", *settings)["spec"]["template"]
    return found


def test_the_lists_of_what_services_may_use_are_the_operators_arguments(helm: Path) -> None:
    (told,) = [word for word in container(helm)["args"] if word.startswith("--allowed=")]
    assert yaml.safe_load(told.partition("=")[2]) == {
        "volumeTypes": [
            *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim"),
            *("projected", "secret"),
        ],
        **{name: ["*"] for name in ("gateways", "hostnames", "images", "sources", "sourceHosts")},
    }
    (told,) = [word for word in container(helm, "allowed.hostnames={a.example.com}")["args"] if "--allowed=" in word]
    assert '"hostnames":["a.example.com"]' in told


def test_the_cluster_may_assign_the_user(helm: Path) -> None:
    """As OpenShift's restricted-v2 demands; of the operator's pod here, of services' by an argument."""
    assert pod(helm)["spec"]["securityContext"].keys() >= {"runAsUser", "runAsGroup"}
    assert "--no-fixed-user" not in container(helm)["args"]
    settings = ("podSecurity.fixedUser=false",)
    for context in (pod(helm, *settings)["spec"], one(helm, "Pod", *settings)["spec"]):
        assert context["securityContext"].keys().isdisjoint(IDS)
        assert context["securityContext"]["runAsNonRoot"] is True
    assert "--no-fixed-user" in container(helm, *settings)["args"]


def test_labels_annotations_options_and_variables_are_added(helm: Path) -> None:
    settings = (
        *("commonLabels.team=ml", "podLabels.tier=ops", "podAnnotations.note=a", "extraArgs={--workers=32}"),
        *("extraEnv[0].name=TZ", "extraEnv[0].value=UTC"),
    )
    for found in objects(render(helm, *settings, "crds.enabled=false").stdout):
        if found["kind"] != "Pod":
            assert found["metadata"]["labels"]["team"] == "ml", found["kind"]
    template = pod(helm, *settings)
    assert {"team": "ml", "tier": "ops"}.items() <= template["metadata"]["labels"].items()
    assert template["metadata"]["annotations"] == {"note": "a"}
    assert container(helm, *settings)["args"][-1] == "--workers=32"
    assert {"name": "TZ", "value": "UTC"} in container(helm, *settings)["env"]
    selector = one(helm, "Deployment", *settings)["spec"]["selector"]["matchLabels"]
    assert selector == one(helm, "Deployment")["spec"]["selector"]["matchLabels"], "it cannot be changed later"


@pytest.mark.parametrize("setting", ["podLabels", "commonLabels"])
def test_a_label_of_the_charts_cannot_be_replaced(helm: Path, setting: str) -> None:
    done = render(helm, f"{setting}.app\\.kubernetes\\.io/name=mine")
    assert done.returncode != 0
    assert "app.kubernetes.io/name" in done.stderr


def test_a_service_account_of_ones_own_gets_the_rights(helm: Path) -> None:
    settings = ("serviceAccount.create=false", "serviceAccount.name=mine")
    rendered = objects(render(helm, *settings).stdout)
    assert not [found for found in rendered if found["kind"] == "ServiceAccount"]
    subjects = [found["subjects"] for found in rendered if found["kind"].endswith("Binding")]
    assert subjects == [[{"kind": "ServiceAccount", "name": "mine", "namespace": NAMESPACE}]] * 2
    assert pod(helm, *settings)["spec"]["serviceAccountName"] == "mine"
    account = one(helm, "ServiceAccount", "serviceAccount.name=named", "serviceAccount.annotations.a=b")
    assert (account["metadata"]["name"], account["metadata"]["annotations"]) == ("named", {"a": "b"})


@pytest.mark.parametrize("fixed", ["true", "false"])
def test_pod_security_restricted_lets_the_pod_of_helm_test_in(helm: Path, cluster: Cluster, fixed: str) -> None:
    place = f"strict-test-{fixed}-{helm.parent.name.partition('-')[0]}"
    cluster.kubectl("create", "namespace", place)
    cluster.kubectl("label", "namespace", place, "pod-security.kubernetes.io/enforce=restricted")
    found = one(helm, "Pod", f"podSecurity.fixedUser={fixed}")
    assert found["metadata"]["annotations"]["helm.sh/hook"] == "test"
    found["metadata"]["namespace"] = place
    cluster.kubectl("create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(found))
