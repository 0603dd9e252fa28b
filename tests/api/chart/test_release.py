"""The life of a release beside services that live longer: installed, changed, taken back, removed, installed again."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_operator.status.write_throttle import DETAIL_SECONDS
from testbed.binaries.golang import build
from tests.api.chart.conftest import ONE_HELM
from tests.api.chart.release import CRD, DEPLOYMENT, Release
from tests.api.operator.process import Operator
from tests.audit import Audit
from tests.eventually import Eventually
from tests.places import KINDS, LABEL, Place

MakePlace = Callable[..., Place]
WITHOUT_KEEP = ("crds.keep=false", "crds.deleteServicesToo=true")
UNINSTALL = Path("docs/operations/install.md").read_text().partition("\n## Uninstall\n")[2].partition("\n## ")[0]
GARBAGE_LIMIT = 180.0
"""s. 30 until the garbage collector asks again which kinds there are, then as long as it has tried already; and a busy
machine.
"""


def commands(text: str) -> list[list[str]]:
    """The arguments of every kubectl command that stands in a line of its own."""
    lines = (line.strip() for line in text.splitlines())
    return [shlex.split(line)[1:] for line in lines if line.startswith("kubectl ")]


def served(release: Release, place: Place, folder: Path, eventually: Eventually) -> list[str]:
    """Uids of the pods of a service that the operator of the release planned and looked after."""
    with release.operator(folder, eventually):
        place.apply()
        eventually(place.reached("WorkloadAvailable", "False", "Starting"))
        eventually(lambda: len(place.pods()) == 1)
    return uids(place)


def uids(place: Place) -> list[str]:
    return [pod["metadata"]["uid"] for pod in place.pods()]


def looked_after(release: Release, place: Place, folder: Path, eventually: Eventually) -> None:
    """The operator of the release has seen the service: it puts back what somebody changed."""
    with release.operator(folder, eventually) as operator:
        place.scale(3)
        eventually(lambda: place.get("deployment", "demo")["spec"]["replicas"] == 1)
        eventually(lambda: len(place.pods()) == 1)
        # What it does not write is left to the next operator, whose writes the tests count.
        eventually(lambda: has_told_its_pod(place))
        eventually(nothing_owed(operator, place))


def nothing_owed(operator: Operator, place: Place) -> Callable[[], bool]:
    """Whether the operator has nothing to do, and the service has not changed for longer than a write is put off."""
    seen, since = "", 0.0

    def check() -> bool:
        nonlocal seen, since
        version = place.get("gisvc", "demo")["metadata"]["resourceVersion"]
        if version != seen or not operator.idle():
            seen, since = version, time.monotonic()
        return time.monotonic() - since > 1.2 * DETAIL_SECONDS

    return check


def has_told_its_pod(place: Place) -> bool:
    """The Deployment's controller has seen the last change, and status says what it counts."""
    deployment = place.get("deployment", "demo")
    counted = deployment["status"]
    seen = counted.get("observedGeneration") == deployment["metadata"]["generation"]
    return seen and counted.get("replicas") == place.status().get("replicas") == 1


def objects(place: Place) -> list[str]:
    """Every object of the namespace that belongs to a service, whatever its kind."""
    kinds = place.cluster.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    return place.names(",".join(kinds))


def nothing_is_left(place: Place) -> bool:
    """Of any kind. Which kinds there are only two processes of kubectl say, so the usual ones are asked for first."""
    usual = ",".join(KINDS.keys() - {"gisvc"})
    return not place.names(usual) and not objects(place)


def test_uninstall_takes_the_operator_and_leaves_the_services_and_the_crd(
    release: Release, make_place: MakePlace, tmp_path: Path, eventually: Eventually
) -> None:
    said = release.install()
    assert said.count("kubectl ") == 3, "NOTES name the next three commands"
    assert "running InferenceServices continue to serve" in said
    place = make_place(release.cluster)
    before = served(release, place, tmp_path, eventually)

    release.uninstall()
    kubectl = release.cluster.kubectl
    left = kubectl(
        "get", "deployments,services,serviceaccounts,roles,rolebindings", "-n", release.namespace, "-o", "name"
    )
    assert left.split() == ["serviceaccount/default"]
    assert "graphpod" not in kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    assert kubectl("get", "crd", CRD, "-o", "name")
    assert uids(place) == before

    release.install()
    looked_after(release, place, tmp_path, eventually)
    assert uids(place) == before


@pytest.mark.parametrize("helm", ONE_HELM, indirect=True)
def test_a_rollback_leaves_the_pods_alone(
    release: Release, make_place: MakePlace, tmp_path: Path, eventually: Eventually
) -> None:
    release.install()
    place = make_place(release.cluster)
    before = served(release, place, tmp_path, eventually)
    generation = place.get("deployment", "demo")["metadata"]["generation"]
    release.install("resources.limits.memory=300Mi")
    looked_after(release, place, tmp_path, eventually)
    release.rollback(1)
    assert release.revisions() == 3
    audit = Audit(release.cluster.audit_log)
    mark = audit.mark()
    with release.operator(tmp_path, eventually) as operator:
        eventually(operator.idle)
    assert audit.since(mark).by(release.account).writes().steady() == ()
    assert uids(place) == before
    assert place.get("deployment", "demo")["metadata"]["generation"] == generation + 2, "scaled by hand and back"


@pytest.mark.parametrize("helm", ONE_HELM, indirect=True)
def test_without_the_keep_policy_and_with_consent_everything_goes(
    release: Release, make_place: MakePlace, tmp_path: Path, eventually: Eventually
) -> None:
    """By the commands of NOTES: the garbage collector of Kubernetes learns of a kind up to 30 s late, and tries again
    after up to as long as it has tried. It deletes nothing of a kind that came and went in that time."""
    assert "crds.deleteServicesToo=true" in release.refused("crds.keep=false")
    warning = release.install(*WITHOUT_KEEP).partition("WARNING: ")[2]
    assert "deletes the CRD and every InferenceService" in warning
    place = make_place(release.cluster)
    served(release, place, tmp_path, eventually)
    assert {"deployment.apps/demo", "service/demo", "serviceaccount/demo"} <= set(objects(place))
    for command in commands(warning):
        release.cluster.kubectl(*command, timeout=GARBAGE_LIMIT)
    eventually(lambda: nothing_is_left(place))
    release.uninstall()
    eventually(release.crd_is_gone)


@pytest.mark.parametrize("helm", ONE_HELM, indirect=True)
def test_what_stays_of_the_services_after_their_crd_goes_by_its_label(
    release: Release, make_place: MakePlace, tmp_path: Path, eventually: Eventually
) -> None:
    """With the command of the documentation, whatever the garbage collector has done by then."""
    release.install(*WITHOUT_KEEP)
    place = make_place(release.cluster)
    served(release, place, tmp_path, eventually)
    release.uninstall()
    eventually(release.crd_is_gone)
    (command,) = [words for words in commands(UNINSTALL) if words[0] == "delete" and LABEL in words]
    release.cluster.kubectl(*command)
    eventually(lambda: nothing_is_left(place))


@pytest.mark.parametrize("helm", ["helm4"], indirect=True)
def test_what_helm_3_installed_helm_4_upgrades(
    release: Release, make_place: MakePlace, tmp_path: Path, eventually: Eventually
) -> None:
    """With live services, whose pods stay."""
    old = replace(release, helm=build(["helm3"])["helm3"])
    place = make_place(release.cluster)
    old.install()
    before = served(old, place, tmp_path, eventually)
    release.install("resources.limits.memory=300Mi")
    found = json.loads(release.cluster.kubectl("get", "deployment", DEPLOYMENT, "-n", release.namespace, "-o", "json"))
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "300Mi"}
    assert release.revisions() == 2
    looked_after(release, place, tmp_path, eventually)
    assert uids(place) == before


def test_nothing_is_installed_onto_a_crd_that_is_being_deleted(release: Release) -> None:
    release.install()
    kubectl = release.cluster.kubectl
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    kubectl("patch", "crd", CRD, "--type=merge", "-p", json.dumps(hold))
    try:
        kubectl("delete", "crd", CRD, "--wait=false")
        assert f"The CRD {CRD} is being deleted, and every InferenceService with it" in release.refused()
    finally:
        kubectl("patch", "crd", CRD, "--type=json", "-p", '[{"op": "remove", "path": "/metadata/finalizers"}]')
