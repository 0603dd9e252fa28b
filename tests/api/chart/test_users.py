"""Rights of users: Kubernetes' own roles view, edit and admin know InferenceServices once the chart is installed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import Cluster
from tests.api.chart.release import Release
from tests.api.chart.rendered import objects, render
from tests.eventually import Eventually
from tests.places import Place

RESOURCE, GROUP = "inferenceservices", "graphpod.dev"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
READ, WRITE = ("get", "list", "watch"), ("create", "update", "patch", "delete", "deletecollection")
ROLES = {"graphpod-view", "graphpod-edit"}


def may(cluster: Cluster, verb: str, user: str, namespace: str, part: str = "") -> bool:
    """Whether a user may do so with services, or with a subresource of them."""
    what = {"verb": verb, "group": GROUP, "resource": RESOURCE, "subresource": part, "namespace": namespace}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    made = cluster.post(REVIEWS, {**review, "spec": {"user": user, "resourceAttributes": what}})
    return bool(made["status"]["allowed"])


def test_view_reads_and_edit_and_admin_do_everything(
    release: Release, make_place: Callable[..., Place], eventually: Eventually
) -> None:
    release.install()
    place = make_place(release.cluster)
    for role in ("view", "edit", "admin"):
        place.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
    asked = {(role, verb) for role in ("view", "edit", "admin") for verb in READ + WRITE}
    wanted = {(role, verb) for role, verb in asked if verb in READ or role != "view"}

    def granted() -> set[tuple[str, str]]:
        return {(role, verb) for role, verb in asked if may(place.cluster, verb, role, place.namespace)}

    eventually(lambda: granted() == wanted)
    assert may(place.cluster, "patch", "edit", place.namespace, "scale")
    assert not may(place.cluster, "patch", "view", place.namespace, "scale")
    assert not may(place.cluster, "patch", "admin", place.namespace, "status"), "the operator's alone"
    assert not may(place.cluster, "get", "edit", "default")


@pytest.mark.parametrize("setting", ["aggregateRoles=false", "crds.enabled=false"])
def test_the_roles_go_with_the_crd_and_can_be_left_out(helm: Path, setting: str) -> None:
    assert {found["metadata"]["name"] for found in objects(render(helm).stdout)} >= ROLES
    assert ROLES.isdisjoint(found["metadata"]["name"] for found in objects(render(helm, setting).stdout))
