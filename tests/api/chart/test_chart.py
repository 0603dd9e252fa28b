"""The chart as helm 3 and helm 4 render it, and what they refuse."""

import os
from pathlib import Path

import pytest
import yaml

from testbed import Cluster
from testbed.binaries.golang import KUBERNETES
from tests.api.chart.rendered import CHART, NAMESPACE, objects, render, run

GOLDEN = Path(__file__).with_name("golden.yaml")


def test_lint_is_clean(helm: Path) -> None:
    done = run(helm, "lint", "--strict", str(CHART), "--kube-version", KUBERNETES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout
    assert "[WARNING]" not in done.stdout


def test_it_renders_what_is_written_down(helm: Path) -> None:
    """`GRAPHPOD_UPDATE_GOLDEN=1 pytest …` writes the file anew; the difference is then read in review."""
    done = render(helm, "crds.enabled=false")
    assert done.returncode == 0, done.stderr
    if os.environ.get("GRAPHPOD_UPDATE_GOLDEN"):
        GOLDEN.write_text(yaml.safe_dump_all(objects(done.stdout), sort_keys=False))
    assert objects(done.stdout) == objects(GOLDEN.read_text())


def test_the_crd_is_the_generated_one_and_is_kept(helm: Path) -> None:
    generated = yaml.safe_load(Path("crds/graphpod.dev_inferenceservices.yaml").read_text())
    (crd,) = [found for found in objects(render(helm).stdout) if found["kind"] == "CustomResourceDefinition"]
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == generated


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("image.tga=1.0", "tga"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("logging.format=logfmt", "format"),
        ("image.digest=sha256:abc", "digest"),
        ("crds.keep=false", "crds.deleteServicesToo=true"),
        ("resources.limits.memory=much", "memory"),
        ("resources.limits.memory=256mb", "memory"),
        ("resources.requests.cpu=-1", "cpu"),
    ],
)
def test_a_wrong_value_is_refused_by_name(helm: Path, setting: str, words: str) -> None:
    done = render(helm, setting)
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.parametrize("quantity", ["256Mi", "0.5", "1", "250m", "1e9", "1.5Gi", "128974848"])
def test_every_form_of_a_quantity_is_taken(helm: Path, quantity: str) -> None:
    assert render(helm, f"resources.limits.memory={quantity}").returncode == 0


def test_a_digest_wins_over_the_tag(helm: Path) -> None:
    digest = "sha256:" + "a" * 64
    done = render(helm, f"image.digest={digest}", "image.tag=ignored", f"engine.image.digest={digest}")
    (deployment,) = [found for found in objects(done.stdout) if found["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"graphpod.dev/operator@{digest}"
    assert f"--engine-image=graphpod.dev/runtime@{digest}" in container["args"]
    assert any(arg.startswith("--engine-gpu-image=") and arg.endswith("-cuda") for arg in container["args"])


def test_with_namespaces_named_it_has_no_rights_elsewhere_but_to_its_lease(helm: Path) -> None:
    found = objects(render(helm, "watchNamespaces={red,blue}", "aggregateRoles=false").stdout)
    roles = [(found["kind"], found["metadata"].get("namespace")) for found in found if "Role" in found["kind"]]
    assert sorted(roles) == [(kind, where) for kind in ("Role", "RoleBinding") for where in ("blue", NAMESPACE, "red")]
    (own,) = [one for one in found if (one["kind"], one["metadata"].get("namespace")) == ("Role", NAMESPACE)]
    assert {resource for rule in own["rules"] for resource in rule["resources"]} == {"leases"}
    (deployment,) = [found for found in found if found["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert [arg for arg in container["args"] if arg.startswith("--namespace")] == [
        "--namespace=red",
        "--namespace=blue",
    ]


def test_pod_security_restricted_lets_the_operator_in(helm: Path, cluster: Cluster) -> None:
    """Asked of the API server itself: `restricted` as a warning on the namespace gives a line for each violation."""
    place = f"strict-{helm.parent.name.partition('-')[0]}"
    cluster.kubectl("create", "namespace", place)
    cluster.kubectl("label", "namespace", place, "pod-security.kubernetes.io/enforce=restricted")
    (deployment,) = [found for found in objects(render(helm).stdout) if found["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    cluster.kubectl("create", "serviceaccount", template["spec"]["serviceAccountName"], "-n", place)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator", "namespace": place, "labels": template["metadata"]["labels"]},
        "spec": template["spec"],
    }
    cluster.kubectl("create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(pod))
