"""The YAML files of the demo name what its code names, and fit the API."""

from pathlib import Path

import pytest
import yaml

from demo.service import CLAIM, EXAMPLE, HERE, NAME, NAMESPACE
from demo.weights import MODEL
from graphpod_operator.api.names import API_VERSION, KIND
from graphpod_operator.api.spec import Spec
from testbed.images.build import IMAGES


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


OF_A_GATEWAY = Path("examples/gateway")
"""Objects of other projects, which tests/unit/operator/test_examples.py reads."""
SERVICES = sorted(path for path in Path("examples").rglob("*.yaml") if path.parent != OF_A_GATEWAY)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_every_example_is_a_valid_service(path: Path) -> None:
    example = load(path)
    assert (example["apiVersion"], example["kind"]) == (API_VERSION, KIND)
    Spec.model_validate(example["spec"])


def test_the_demo_is_in_one_namespace_under_one_name() -> None:
    service, claim, job = load(EXAMPLE), load(HERE / "claim.yaml"), load(HERE / "weights-job.yaml")
    assert load(HERE / "namespace.yaml")["metadata"]["name"] == NAMESPACE
    assert {found["metadata"]["namespace"] for found in (service, claim, job)} == {NAMESPACE}
    assert service["metadata"]["name"] == NAME
    assert (claim["metadata"]["name"], job["metadata"]["name"]) == (CLAIM, CLAIM)
    assert service["spec"]["model"]["uri"] == f"pvc://{CLAIM}/{MODEL}"


def test_the_job_runs_the_image_that_is_built() -> None:
    pod = load(HERE / "weights-job.yaml")["spec"]["template"]["spec"]
    assert [container["image"] for container in pod["containers"]] == [IMAGES["demo-weights"].tag]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == CLAIM
