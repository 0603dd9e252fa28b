"""Legal moves of users that are rare: each is named in the status, or put back, and costs few writes."""

import json
from typing import Any

import pytest

from graphpod_operator.api.names import MANAGED_BY, OWNER_LABEL
from tests.api.operator.process import USER
from tests.api.operator.test_status import ready, the_pod  # noqa: F401
from tests.audit import Audit
from tests.places import Manifest, Place

COUNTED = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


@pytest.mark.parametrize("label", [MANAGED_BY[0], OWNER_LABEL])
def test_a_serving_pod_that_lost_our_label_is_named_and_found_again_with_it(
    ready: Place,  # noqa: F811
    eventually,
    label: str,
) -> None:
    pod = the_pod(ready)
    name, value = pod["metadata"]["name"], pod["metadata"]["labels"][label]
    ready.merge("deployment", "demo", {"status": dict.fromkeys(COUNTED, 1)}, "status")
    ready.label("pod", name, {label: None})
    told = eventually(ready.reached("WorkloadAvailable", "False", "Starting"))
    assert "1 are available, and 0 of them have the labels" in told
    ready.label("pod", name, {label: value})
    eventually(ready.reached("Ready", "True", "Ready"))


def test_a_deployment_that_lost_its_owner_is_named_and_taken_again_with_it(
    quiet: Place, audit: Audit, eventually
) -> None:
    before = quiet.get("deployment", "demo")["metadata"]
    mark = audit.mark()
    quiet.merge("deployment", "demo", {"metadata": {"ownerReferences": None}})
    told = eventually(quiet.reached("Accepted", "False", "OwnerMissing"))
    assert told.startswith(f"Deployment {quiet.namespace}/demo has no owner reference to the service any more")
    quiet.merge("deployment", "demo", {"metadata": {"ownerReferences": before["ownerReferences"]}})
    eventually(quiet.reached("Accepted", "True", "Accepted"))
    assert quiet.get("deployment", "demo")["metadata"]["generation"] == before["generation"]
    written = audit.since(mark).by(USER).of(quiet.namespace).writes()
    assert {one.kind for one in written} <= {"inferenceservices/status", "events"}


def test_fields_that_an_admission_policy_changes_are_named_and_no_write_answers_it(
    quiet: Place, audit: Audit, eventually, settled
) -> None:
    mirror = "mirror.example/runtime:1"
    policy = json.dumps(_sets_image(quiet.namespace, mirror))
    quiet.cluster.kubectl("apply", "-f", "-", input=policy)
    try:
        eventually(lambda: _image(quiet, "--dry-run=server") == mirror)
        mark = audit.mark()
        quiet.apply(engine={"maxBatch": 3})
        eventually(lambda: _image(quiet) == mirror)
        told = eventually(
            lambda: [one["message"] for one in quiet.all("event") if one["reason"] == "ChangedAtAdmission"]
        )
        assert told[0].startswith("Deployment demo: spec.template.spec.containers[engine].image; ")
        settled()
        written = [one for one in audit.since(mark).by(USER).of(quiet.namespace).writes() if one.kind == "deployments"]
        assert len(written) == 1
    finally:
        quiet.cluster.kubectl("delete", "-f", "-", input=policy)


def _image(place: Place, *words: str) -> str:
    """The image of the Deployment; with words, of one that is annotated with these."""
    if words:
        done = place.kubectl("annotate", "deployment", "demo", "a=b", "--overwrite", "-o", "json", *words)
        found: Manifest = json.loads(done)
    else:
        found = place.get("deployment", "demo")
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"])


def _sets_image(namespace: str, image: str) -> dict[str, Any]:
    """A policy that rewrites the images of Deployments, as one for a mirror does."""
    api, kind, name = "admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", f"mirror-{namespace}"
    path = "/spec/template/spec/containers/0/image"
    what = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    patch = {"expression": f'[JSONPatch{{op: "replace", path: "{path}", value: "{image}"}}]'}
    spec = {
        "matchConstraints": {
            "resourceRules": [{**what, "operations": ["CREATE", "UPDATE"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        },
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": patch}],
    }
    policy = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}
    binding = {"apiVersion": api, "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": {"policyName": name}}
    return {"apiVersion": "v1", "kind": "List", "items": [policy, binding]}
